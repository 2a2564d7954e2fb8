//! A frontend under test that follows a Service of a scripted cluster.

use std::sync::Arc;

use parm_frontend::{Config, Frontend, Timers};
use parm_settings::PolicyKind;
use serde_json::{Value, json};

use crate::cluster::{Cluster, pod};
use crate::rig::{Network, config, get, infer, metric, ready, request, until};
use crate::scripted::Scripted;

pub(crate) const SERVICE: &str = "kubernetes+test://workers.ml:http";

/// A frontend that follows a Service, and three workers for its pods.
pub(crate) struct Followed {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) workers: [Arc<Scripted>; 3],
    pub(crate) network: Arc<Network>,
    pub(crate) frontend: Frontend,
}

impl Followed {
    pub(crate) fn start(cluster: Arc<Cluster>) -> Self {
        Self::start_with(cluster, |_| {})
    }

    pub(crate) fn start_with(cluster: Arc<Cluster>, change: impl FnOnce(&mut Config)) -> Self {
        let workers = [1, 2, 3].map(|number| Scripted::quick(&format!("test://10.0.0.{number}:8000"), 40));
        let network = Network::with(&workers.each_ref());
        network.has(&cluster);
        let mut config = Config { workers: vec![SERVICE.into()], ..config(PolicyKind::None) };
        config.kubernetes.server = Some("http://api.test".into());
        change(&mut config);
        let frontend = Frontend::start(config, network.clone(), Timers::Runtime).unwrap();
        Self { cluster, workers, network, frontend }
    }

    /// Starts with pods for the first `pods` workers, each on its own node, in one slice.
    pub(crate) async fn with(pods: usize) -> Self {
        let cluster = Cluster::new();
        cluster.put("w-1", &well(pods));
        let followed = Self::start(cluster);
        followed.until_ready(pods).await;
        followed.until_watched().await;
        followed
    }

    pub(crate) async fn until_ready(&self, count: usize) {
        until("the instances are ready", || ready(&self.frontend) == count as f64).await;
    }

    pub(crate) async fn until_watched(&self) {
        until("the Service is watched", || self.cluster.watches() == 1).await;
    }

    pub(crate) async fn until_current(&self, current: bool) {
        let expected = if current { 1.0 } else { 0.0 };
        until("the state is known", || self.metric("parm_kubernetes_current") == expected).await;
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        metric(&self.frontend, name, &[&format!("service=\"{SERVICE}\"")])
    }

    pub(crate) fn lists(&self) -> usize {
        self.cluster.asked("limit=").len()
    }

    /// A worker's node and zone in the admin API.
    pub(crate) async fn place(&self, address: &str) -> (Value, Value) {
        let (_, instances) = get(&self.frontend, "/instances").await;
        let own = instances.as_array().unwrap().iter().find(|one| one["address"] == address);
        let own = own.unwrap_or_else(|| panic!("unknown instance {address}: {instances}"));
        assert_eq!(own["source"], "kubernetes");
        (own["node"].clone(), own["zone"].clone())
    }

    pub(crate) async fn works(&self) {
        infer(&self.frontend, request(&[1.0])).await.unwrap();
    }
}

/// The first `pods` workers as healthy pods, each on its own node.
pub(crate) fn well(pods: usize) -> Vec<Value> {
    (1..=pods).map(|number| pod(&format!("10.0.0.{number}"), &format!("n{number}"), json!({}))).collect()
}
