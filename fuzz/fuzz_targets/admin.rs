#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| parm_fuzz::frontends::admin::run(data));
