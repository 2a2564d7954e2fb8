//! Handles interrupts: the first makes a run save its checkpoint and end, the second ends at once.

use std::sync::Arc;

use parm_training::fit::Stop;

/// Returns a stop that SIGINT and SIGTERM request.
pub fn on_signals() -> anyhow::Result<Arc<Stop>> {
    let stop = Arc::new(Stop::default());
    let requested = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            let Ok(token) = crate::shutdown::token() else { return };
            token.cancelled().await;
            eprintln!("stopping after this step and writing the checkpoint");
            requested.request();
            std::future::pending::<()>().await;
        });
    })?;
    Ok(stop)
}
