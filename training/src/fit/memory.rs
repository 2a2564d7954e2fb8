//! Keeps freed memory in the process between steps.
#![allow(unsafe_code)] // one call into the C library, which has no safe form

/// Tells the allocator to keep memory that a step frees, since the next step allocates the same sizes. glibc returns
/// large blocks to the kernel, and faulting them in again, page by page, took a fifth of a step.
pub(super) fn keep() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// The largest block on the heap, glibc's maximum.
        const PIECE: libc::c_int = 32 << 20;
        // SAFETY: both options accept any number, at any time, from any thread.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, PIECE);
            libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        }
    }
}
