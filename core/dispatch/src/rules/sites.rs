//! Sites that a job should avoid, because its queries are held or failed there.

use crate::api::{Role, Sites};
use crate::state::State;
use crate::state::arena::Key;
use crate::state::extra::Extra;
use crate::state::keys::QueryKey;
use crate::state::query::StandInState;

/// The known sites of the instances that hold or failed the queries of an extra job.
pub(crate) fn sites_of(state: &State, extra: &Extra) -> Sites {
    let mut sites = Sites::new();
    match extra.role {
        Role::Parity(group, _) => {
            sites.extend(state.groups.at(Key::from(group)).places.iter().map(|(_, site)| *site));
        }
        Role::Deployed | Role::Copy | Role::Backup | Role::StandIn(_) => {
            extra.rows.iter().for_each(|query| add_sites(state, *query, &mut sites));
            let failed = extra.avoid.and_then(|(instance, _)| state.instances.get(instance));
            sites.extend(failed.map(|instance| instance.site));
        }
    }
    sites.retain(|site| site.is_known());
    sites
}

/// The known sites of the instances that hold a query.
pub(crate) fn sites_of_query(state: &State, query: QueryKey) -> Sites {
    let mut sites = Sites::new();
    add_sites(state, query, &mut sites);
    sites.retain(|site| site.is_known());
    sites
}

fn add_sites(state: &State, query: QueryKey, sites: &mut Sites) {
    let query = state.queries.at(query);
    let stand_in = if let StandInState::Runs(job) = query.stand_in { Some(job) } else { None };
    let jobs = query.jobs.iter().copied().chain(stand_in).filter_map(|job| state.jobs.get(job));
    let instances = jobs.filter_map(|job| state.instances.get(job.instance));
    sites.extend(instances.map(|instance| instance.site));
}
