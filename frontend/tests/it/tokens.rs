//! What a worker of ours says about its slots.

use std::num::NonZeroU16;
use std::time::Duration;

use parm_protocol::fleet::News;
use parm_settings::PolicyKind;

use crate::rig::{config, frontend, request, start};
use crate::scripted::Scripted;

#[tokio::test(start_paused = true)]
async fn instance_gets_as_many_jobs_at_a_time_as_it_states() {
    let instance = Scripted::quick("a", 50);
    let mut config = config(PolicyKind::None);
    config.dispatch.batch.max_size = parm_settings::BatchSize::ONE;
    let frontend = frontend(config, &[&instance]).await;
    for (slots, jobs) in [(1, 1), (3, 3), (2, 2)] {
        instance.says(1, News::Slots(NonZeroU16::new(slots).unwrap()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = instance.seen.lock().len();
        let calls = [1.0, 2.0, 3.0, 4.0].map(|value| start(&frontend, request(&[value])));
        tokio::time::sleep(Duration::from_millis(25)).await;
        assert_eq!(instance.seen.lock().len() - before, jobs, "{slots} slots");
        for call in calls {
            call.await.unwrap().unwrap();
        }
    }
}
