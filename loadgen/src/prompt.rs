//! A thread that is run as soon as it wakes, even where all cores are busy.
//!
//! On two busy cores a thread of the usual class waits some 3 ms for its turn in one of a hundred wake-ups, and a schedule
//! that is kept so is no schedule. Three things help, each as far as the kernel lets us: sleeps that are not rounded up (by 50 us
//! otherwise); the lowest real-time priority, which root and `CAP_SYS_NICE` may have (0.08 ms instead of 3); or else slices of 0.1
//! ms (Linux 6.12 and later), with which a thread that wakes is let in sooner (1.5 ms). For threads that mostly sleep only.

/// The calling thread is prompt until this is dropped.
#[derive(Debug)]
pub struct Prompt {
    #[cfg(target_os = "linux")]
    before: Option<linux::Scheduling>,
    /// Dropped where it was made: what it changes belongs to that thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Prompt {
    /// Asks the kernel for the calling thread. What it refuses stays as it was.
    pub fn ask() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            before: linux::ask(),
            _here: std::marker::PhantomData,
        }
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(before) = self.before.take() {
            before.set();
        }
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // plain system calls on the calling thread, for which neither std nor rustix has a wrapper
mod linux {
    use std::num::NonZeroU64;

    /// How the kernel schedules a thread.
    #[derive(Clone, Copy)]
    pub(super) struct Scheduling(libc::sched_attr);

    /// What it was before; `None` where there is nothing to restore.
    pub(super) fn ask() -> Option<Scheduling> {
        // Refused only by exotic kernels.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let before = Scheduling::get().filter(|now| now.0.sched_policy == libc::SCHED_OTHER as u32)?;
        let real_time = libc::sched_attr {
            sched_policy: libc::SCHED_FIFO as u32,
            sched_priority: 1,
            sched_nice: 0,
            sched_runtime: 0,
            // Threads that are started meanwhile are ordinary ones.
            sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
            ..before.0
        };
        let short_slices = libc::sched_attr { sched_runtime: 100_000, ..before.0 };
        (Scheduling(real_time).set() || Scheduling(short_slices).set()).then_some(before)
    }

    impl Scheduling {
        pub(super) fn get() -> Option<Self> {
            let size = size_of::<libc::sched_attr>() as u32;
            // SAFETY: all zeros are a valid value of this struct of integers, and the kernel writes at most `size` bytes to it.
            let (failed, attributes) = unsafe {
                let mut attributes: libc::sched_attr = std::mem::zeroed();
                (libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0u32), attributes)
            };
            (failed == 0).then_some(Self(attributes))
        }

        /// Whether the kernel agreed.
        pub(super) fn set(self) -> bool {
            // SAFETY: the struct is as long as it says it is, lives through the call, and concerns the calling thread only.
            unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const self.0, 0u32) == 0 }
        }

        #[cfg(test)]
        pub(super) fn policy_and_slice(self) -> (u32, u64) {
            (self.0.sched_policy, self.0.sched_runtime)
        }
    }

    impl std::fmt::Debug for Scheduling {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "Scheduling({})", self.0.sched_policy)
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_scheduled_as_before_once_it_need_not_be_prompt() {
        let now = || linux::Scheduling::get().unwrap().policy_and_slice();
        let before = now();
        let prompt = Prompt::ask();
        let during = now();
        // A kernel may refuse everything; then nothing has changed.
        assert!(prompt.before.is_some() == (during != before), "{before:?} {during:?}");
        drop(prompt);
        assert_eq!(now(), before);
    }
}
