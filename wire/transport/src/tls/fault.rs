//! Faults of the TLS files of a running process.

use std::time::SystemTime;

use parm_protocol::StableCode;

use super::Tls;
use super::handle::SOON;
use crate::FileFault;

impl Tls {
    /// Returns the faults of the files now: changed files that are not in use, and a certificate that expires.
    pub fn faults(&self) -> Vec<FileFault> {
        let Some(charter) = &self.0 else { return Vec::new() };
        let stale = charter.counts.stale.lock().clone().map(|reason| FileFault {
            code: StableCode::TlsFiles,
            text: format!("cannot use the files of [tls]: {reason}: the previous ones stay in use"),
            fails: true,
        });
        let expiry = |fails, text| FileFault { code: StableCode::CertificateExpired, text, fails };
        let early = charter.identity().early();
        let early = early.map(|early| expiry(true, format!("{early}: peers will reject it until then")));
        let expiry = match charter.identity().not_after.map(|end| end.duration_since(SystemTime::now())) {
            Some(Err(_)) => {
                Some(expiry(true, "the certificate has expired and peers will reject it".to_owned()))
            }
            Some(Ok(left)) if left < SOON => {
                Some(expiry(false, format!("the certificate expires in {} hours", left.as_secs() / 3600)))
            }
            _ => None,
        };
        stale.into_iter().chain(early).chain(expiry).collect()
    }
}
