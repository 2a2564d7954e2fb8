//! A worker with one slot that several frontends share: it has the workers' half of grants and runs one job at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use parm_grants::{Granter, Order, Told};
use parm_protocol::fleet::News;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

use crate::scripted::Scripted;

pub(crate) struct OneSlot {
    granter: Mutex<Granter<usize>>,
    slot: Semaphore,
    began: Instant,
    news: Notify,
    /// Jobs that had to wait for another one.
    pub(crate) met: AtomicUsize,
    /// The frontend that says and hears nothing.
    frozen: Mutex<Option<usize>>,
}

impl OneSlot {
    /// Connects frontends, which have joined, by an instance each.
    pub(crate) fn shared_by(instances: &[&Arc<Scripted>]) -> Arc<Self> {
        let mut granter = Granter::new(1);
        (0..instances.len()).for_each(|frontend| granter.join(frontend));
        let worker = Arc::new(Self {
            granter: Mutex::new(granter),
            slot: Semaphore::new(1),
            began: Instant::now(),
            news: Notify::new(),
            met: AtomicUsize::new(0),
            frozen: Mutex::default(),
        });
        for (frontend, instance) in instances.iter().enumerate() {
            assert!(instance.worker.set((worker.clone(), frontend)).is_ok(), "it has one worker");
        }
        let instances: Vec<_> = instances.iter().map(|instance| Arc::clone(instance)).collect();
        let teller = worker.clone();
        tokio::spawn(async move {
            let mut all = Vec::new();
            loop {
                all.append(&mut teller.settled());
                let frozen = *teller.frozen.lock();
                let told: Vec<_> = all.extract_if(.., |(frontend, _)| frozen != Some(*frontend)).collect();
                for (frontend, told) in told {
                    instances[frontend].says(1, News::Told(told));
                }
                let _ = timeout(Duration::from_millis(1), teller.news.notified()).await;
            }
        });
        worker
    }

    /// A frontend says nothing from now on, and hears what it is told once it continues.
    pub(crate) fn freeze(&self, frontend: Option<usize>) {
        *self.frozen.lock() = frontend;
    }

    pub(crate) fn unused_grants(&self) -> usize {
        self.granter.lock().unused()
    }

    pub(crate) fn hears(&self, frontend: usize, order: Order) {
        if *self.frozen.lock() != Some(frontend) {
            self.granter.lock().hears(self.now(), frontend, order);
            self.news.notify_one();
        }
    }

    /// Runs a job.
    pub(crate) async fn run<T>(&self, frontend: usize, job: impl Future<Output = T>) -> T {
        let is_granted = self.granter.lock().comes(frontend);
        if self.slot.available_permits() == 0 {
            self.met.fetch_add(1, Ordering::Relaxed);
        }
        let _slot = self.slot.acquire().await;
        if !is_granted {
            self.granter.lock().begin();
        }
        let answer = job.await;
        self.granter.lock().end(self.now(), Some(frontend));
        self.news.notify_one();
        answer
    }

    fn settled(&self) -> Vec<(usize, Told)> {
        let mut granter = self.granter.lock();
        granter.settle(self.now());
        granter.told().collect()
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}
