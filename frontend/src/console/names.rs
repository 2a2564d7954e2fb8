//! Rarely changing data: models and instances with their properties.

use std::sync::Arc;

use parm_protocol::{ModelIndex, Place};
use parm_settings::PolicyKind;
use serde::Serialize;

use super::moment::INSTANCES;
use crate::discovery::{Member, Source, View};
use crate::serve::reading::InstanceReading;
use crate::serve::{Frontend, Pool};

/// A model, as it is sent.
#[derive(Serialize)]
pub(super) struct ModelName {
    m: u32,
    name: String,
    version: String,
    policy: PolicyKind,
    in_force: PolicyKind,
    revision: u64,
    own: bool,
    codes: Vec<(usize, usize)>,
    stand_in: Option<String>,
    problem: Option<String>,
    failing: Option<String>,
    failing_reason: Option<&'static str>,
}

/// An instance, as it is sent.
#[derive(Serialize)]
pub(super) struct InstanceName {
    number: u32,
    address: String,
    source: Source,
    node: Option<String>,
    zone: Option<String>,
    models: Vec<u32>,
    /// Models that it has and does not serve, with the reasons.
    absent: Vec<(String, String)>,
    problem: Option<String>,
}

pub(super) fn models(frontend: &Frontend) -> Vec<ModelName> {
    let core = &frontend.core;
    let (settings, revision) = (core.settings(), core.revision());
    let model = |pool: &Arc<Pool>| {
        let name = &pool.model.name;
        let policy = settings.of(name).policy;
        let standing = pool.standing();
        let failing = pool.failing();
        let in_force = standing.as_ref().map(|standing| &standing.in_force);
        let codes = in_force.map(|own| own.coding.codes.iter().map(|code| (code.k, code.parities)).collect());
        ModelName {
            m: pool.id.0,
            name: name.clone(),
            version: pool.version.clone(),
            policy,
            in_force: in_force.map_or(policy, |own| own.policy),
            revision,
            own: settings.models.contains_key(name),
            codes: codes.unwrap_or_default(),
            stand_in: pool.codes().stand_in.as_ref().map(|own| own.model.name.clone()),
            // A stand-in needs none of its own.
            problem: standing
                .and_then(|standing| standing.not_coded)
                .filter(|_| core.serves_others(name).is_none()),
            failing_reason: failing.as_ref().map(|trouble| trouble.reason),
            failing: failing.map(|trouble| trouble.error),
        }
    };
    core.catalog.all().iter().map(model).collect()
}

pub(super) fn instances(frontend: &Frontend) -> Vec<InstanceName> {
    let instance = |(member, view, reading): (Arc<Member>, View, Option<InstanceReading>)| {
        let problem = view.problem_with(reading.as_ref());
        let pools = view.instance.as_ref().map(|instance| instance.pools()).unwrap_or_default();
        let absent = view.instance.map(|instance| instance.absent()).unwrap_or_default();
        let broken = |model: ModelIndex| (!model.reason.is_empty()).then_some((model.name, model.reason));
        let Place { node, zone, .. } = member.place();
        InstanceName {
            number: member.number,
            address: member.name.clone(),
            source: member.source,
            node,
            zone,
            models: pools.iter().map(|pool| pool.id.0).collect(),
            absent: absent.into_iter().filter_map(broken).collect(),
            problem,
        }
    };
    frontend.fleet.readings().into_iter().take(INSTANCES).map(instance).collect()
}
