//! Manifests against the API's types: a field that the API does not have, or of another type, fails.
//!
//! A document is read into the type of its kind and written again. Fields that the type lacks are lost, and a missing
//! required field appears, so both texts must have the same content. `deploy/check.sh` also renders overlays and the chart.

use std::collections::BTreeSet;
use std::fs;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::support::process::root;
use crate::support::workspace::files;

type Check = fn(&Value) -> Result<(), String>;

/// The kinds of the API in our manifests.
const KINDS: &[(&str, Check)] = &[
    ("apps/v1 Deployment", same::<Deployment>),
    ("autoscaling/v2 HorizontalPodAutoscaler", same::<HorizontalPodAutoscaler>),
    ("batch/v1 Job", same::<Job>),
    ("networking.k8s.io/v1 NetworkPolicy", same::<NetworkPolicy>),
    ("policy/v1 PodDisruptionBudget", same::<PodDisruptionBudget>),
    ("rbac.authorization.k8s.io/v1 Role", same::<Role>),
    ("rbac.authorization.k8s.io/v1 RoleBinding", same::<RoleBinding>),
    ("v1 PersistentVolumeClaim", same::<PersistentVolumeClaim>),
    ("v1 Service", same::<Service>),
    ("v1 ServiceAccount", same::<ServiceAccount>),
];

/// Groups of extensions, whose types the API does not have.
const EXTENSIONS: &[&str] = &[
    "gateway.networking.k8s.io/",
    "kustomize.config.k8s.io/",
    "monitoring.coreos.com/",
    "serving.kserve.io/",
];

fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    documents.map(|one| Value::deserialize(one).unwrap()).filter(|one| !one.is_null()).collect()
}

/// Compares a document with what its type keeps of it.
fn same<T: DeserializeOwned + serde::Serialize>(source: &Value) -> Result<(), String> {
    let read: T = serde_json::from_value(source.clone()).map_err(|error| error.to_string())?;
    difference("", source, &serde_json::to_value(read).unwrap())
}

fn difference(at: &str, source: &Value, read: &Value) -> Result<(), String> {
    match (source, read) {
        (Value::Object(source), Value::Object(read)) => {
            source.keys().chain(read.keys()).try_for_each(|key| match (source.get(key), read.get(key)) {
                (Some(source), Some(read)) => difference(&format!("{at}.{key}"), source, read),
                (Some(_), None) => Err(format!("{at}.{key}: the API does not have it")),
                _ => Err(format!("{at}.{key}: it is missing")),
            })
        }
        (Value::Array(source), Value::Array(read)) if source.len() == read.len() => {
            let mut pairs = source.iter().zip(read).enumerate();
            pairs.try_for_each(|(index, (source, read))| difference(&format!("{at}[{index}]"), source, read))
        }
        _ if source == read => Ok(()),
        _ => Err(format!("{at}: {source} was read as {read}")),
    }
}

/// Checks a document. Returns its kind, or `None` if it is of an extension.
fn checked(document: &Value) -> Result<Option<&'static str>, String> {
    let text = |name: &str| document[name].as_str().ok_or_else(|| format!("it has no {name}"));
    let (group, kind) = (text("apiVersion")?, text("kind")?);
    if EXTENSIONS.iter().any(|extension| group.starts_with(extension)) {
        return Ok(None);
    }
    let name = format!("{group} {kind}");
    let (name, check) =
        KINDS.iter().find(|(own, _)| *own == name).ok_or_else(|| format!("unknown kind {name}"))?;
    check(document).map(|()| Some(*name))
}

fn job() -> String {
    fs::read_to_string(root().join("deploy/grids/kubernetes.yaml")).unwrap()
}

#[test]
fn manifests_have_only_fields_of_the_api() {
    let mut seen = BTreeSet::new();
    let folders = ["deploy/kubernetes", "deploy/grids"].map(|folder| root().join(folder));
    for path in folders.iter().flat_map(|folder| files(folder, "yaml")) {
        // Settings of kustomize, not an object.
        if path.ends_with("kserve/names.yaml") {
            continue;
        }
        let documents = documents(&fs::read_to_string(&path).unwrap());
        assert!(!documents.is_empty(), "{} is empty", path.display());
        for document in documents {
            seen.extend(checked(&document).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        }
    }
    let all: BTreeSet<&str> = KINDS.iter().map(|(name, _)| *name).collect();
    assert_eq!(seen, all, "every kind of the table is used");
}

#[test]
fn job_is_indexed_and_fails_only_on_invalid_input() {
    let job: Job = serde_json::from_value(documents(&job()).remove(0)).unwrap();
    let spec = job.spec.unwrap();
    assert_eq!(spec.completion_mode.as_deref(), Some("Indexed"));
    let (completions, pod) = (spec.completions.unwrap(), spec.template.spec.unwrap());
    // The API rejects a pod failure policy with any other.
    assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
    let share = pod.containers[0].args.as_ref().unwrap().last().unwrap();
    assert_eq!(*share, format!("$(JOB_COMPLETION_INDEX)/{completions}"), "every cell is in a share");
    let codes: Vec<i32> = spec
        .pod_failure_policy
        .unwrap()
        .rules
        .into_iter()
        .filter_map(|rule| rule.on_exit_codes)
        .flat_map(|codes| codes.values)
        .collect();
    // Of clap, and of an invalid file.
    assert_eq!(codes, [2, 64]);
    let mounts = pod.containers[0].volume_mounts.as_ref().unwrap().iter().map(|mount| mount.name.clone());
    let volumes = pod.volumes.unwrap().into_iter().map(|volume| volume.name);
    assert_eq!(mounts.collect::<BTreeSet<_>>(), volumes.collect());
}
