//! A thread that runs as soon as it wakes, even if all cores are busy.
//!
//! On two busy cores a thread of the default scheduling class waits about 3 ms in one of a hundred wake-ups, which is too
//! late for a schedule. Three settings help, if the kernel allows them. First, sleeps that are not rounded up (by 50 us
//! otherwise). Second, the lowest real-time priority, which requires root or `CAP_SYS_NICE` (0.08 ms instead of 3). If
//! that is refused, slices of 0.1 ms (Linux 6.12 and later), which let a waking thread in sooner (1.5 ms). Use it only
//! for threads that sleep most of the time.

/// The calling thread is prompt until this is dropped.
#[derive(Debug)]
pub struct Prompt {
    #[cfg(target_os = "linux")]
    before: Option<linux::Scheduling>,
    /// Dropped on the thread that created it: the changed settings belong to that thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Prompt {
    /// Changes the settings of the calling thread. Those that the kernel refuses stay unchanged.
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

    /// The setting before the change; `None` if there is nothing to restore.
    pub(super) fn ask() -> Option<Scheduling> {
        // Only unusual kernels refuse this.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let before = Scheduling::get().filter(|now| now.0.sched_policy == libc::SCHED_OTHER as u32)?;
        let real_time = libc::sched_attr {
            sched_policy: libc::SCHED_FIFO as u32,
            sched_priority: 1,
            sched_nice: 0,
            sched_runtime: 0,
            // Threads that this one starts are ordinary ones.
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

        /// Returns whether the kernel accepted the setting.
        pub(super) fn set(self) -> bool {
            // SAFETY: the struct has the size that it states, outlives the call, and affects the calling thread only.
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
    fn scheduling_is_restored_when_the_prompt_is_dropped() {
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
