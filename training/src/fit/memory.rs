//! Memory that stays ours from step to step.
#![allow(unsafe_code)] // one call into the C library, which has no safe form

/// Tells the allocator to keep what a step frees for the next one, which asks for the same sizes again. GNU's hands
/// large pieces back to the kernel, and fetching them anew, page by page, took a fifth of a step.
pub(super) fn keep() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// The largest piece that may come from the heap: as large as GNU's allows.
        const PIECE: libc::c_int = 32 << 20;
        // SAFETY: both options take any number, at any time, from any thread.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, PIECE);
            libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        }
    }
}
