//! Comparison of an answer with the runs of its request.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use tokio::time::Instant;

use super::client::{End, LATE};
use super::plan::{Mood, Route};
use super::record::{Record, pieces};
use crate::invariants::in_service;

/// Time after which a server that is well must be in use again.
const SETTLED: Duration = Duration::from_secs(10);

/// Time for which such a server may be out of service, if its answers were slow by chance: longer than the longest backoff.
const OUT: Duration = Duration::from_secs(3);

/// The beginning of the event with which parm ends a broken stream.
const ERROR_EVENT: &[u8] = b"\n\nevent: error\ndata: ";

pub(super) fn judge(record: &mut Record, number: usize, end: &End) {
    let sent = record.requests[number].clone();
    let errand = &sent.errand;
    let runs = record.runs_of(number).count();
    if errand.route.is_once() && runs > 1 {
        record.breach("a request that must run once runs once", || {
            format!("request {number} ran {runs} times")
        });
    }
    match end {
        End::Left => {}
        End::NoHead(why) => {
            record.breach("every request gets an answer", || format!("request {number} ({errand:?}): {why}"));
        }
        End::Answer { status, outcome, after, body, cut, stalled, call } => {
            if *after > Duration::from_millis(errand.timeout) + LATE {
                record.breach("answers begin by their deadline", || {
                    format!("request {number} ({errand:?}): {status} after {after:?}")
                });
            }
            if *stalled && !errand.route.has_own_stall() {
                return;
            }
            if *stalled {
                record.breach("a broken answer ends", || format!("request {number} ({errand:?})"));
                return;
            }
            if errand.route == Route::Call && cut.is_none() {
                call_ends_with_its_status(record, number, body, call.as_ref());
            } else if outcome.is_some() && status.is_success() {
                is_of_one_run(record, number, body, cut.as_deref());
            } else {
                has_a_cause(record, number, *status, body, cut.as_deref());
            }
        }
    }
}

/// A call is whole with the status 0. With another one it broke, or failed before its first message.
fn call_ends_with_its_status(
    record: &mut Record,
    number: usize,
    body: &Bytes,
    call: Option<&(String, String)>,
) {
    match call {
        None => record
            .breach("a call has a status", || format!("request {number}: {}", String::from_utf8_lossy(body))),
        Some((code, _)) if code == "0" => is_of_one_run(record, number, body, None),
        Some((_, message)) if !body.is_empty() => is_of_one_run(record, number, body, Some(message)),
        Some((code, message)) => {
            let status = if code == "4" { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
            has_a_cause(record, number, status, &message.clone().into(), None);
        }
    }
}

/// A whole answer is that of a run, and one that broke is its beginning.
fn is_of_one_run(record: &mut Record, number: usize, body: &Bytes, cut: Option<&str>) {
    let errand = record.requests[number].errand.clone();
    let ended = body.windows(ERROR_EVENT.len()).position(|part| part == ERROR_EVENT);
    let (content, is_cut) = (&body[..ended.unwrap_or(body.len())], ended.is_some() || cut.is_some());
    let fits = record.runs_of(number).any(|(run, _)| {
        let whole = pieces(&errand, run).concat();
        if is_cut { whole.starts_with(content) } else { whole == content }
    });
    if !fits {
        let text = String::from_utf8_lossy(&content[..content.len().min(300)]).into_owned();
        record.breach("an answer is that of one run", || {
            format!("request {number} ({errand:?}), cut: {cut:?} {is_cut}, {} bytes: {text}", content.len())
        });
    }
    let broke = record.runs_of(number).any(|(_, run)| !run.well);
    if is_cut && !broke {
        record.breach("no healthy answer is cut", || {
            format!(
                "request {number} ({errand:?}), cut: {cut:?}, {}",
                String::from_utf8_lossy(&body[content.len()..])
            )
        });
    }
}

/// A failure is that of a server, or has a reason of parm's own.
fn has_a_cause(record: &mut Record, number: usize, status: StatusCode, body: &Bytes, cut: Option<&str>) {
    let sent = record.requests[number].clone();
    let text = String::from_utf8_lossy(body).into_owned();
    let told = format!("request {number} ({:?}): {status} {text} {cut:?}", sent.errand);
    let is_call = sent.errand.route == Route::Call;
    let is_servers = text.starts_with("failed by run ");
    if let Some(run) = text.strip_prefix("failed by run ").and_then(|run| run.parse::<usize>().ok()) {
        if record.runs.get(run).is_none_or(|run| run.request != number) {
            record.breach("an answer is that of one run", || told.clone());
        }
    } else if text.is_empty() || !(is_call || text.contains("parm_error")) || cut.is_some() {
        record.breach("errors say what failed", || told.clone());
    }
    if status == StatusCode::GATEWAY_TIMEOUT
        && sent.at.elapsed() + Duration::from_millis(5) < Duration::from_millis(sent.errand.timeout)
    {
        record.breach("no request expires early", || told.clone());
    }
    // Such an answer of a server is final.
    let is_final = is_servers && !(status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED);
    if is_final || record.steady(sent.at, SETTLED).next().is_none() {
        return;
    }
    if status == StatusCode::GATEWAY_TIMEOUT && !record.hedges {
        return;
    }
    let failed = record.runs_of(number).filter(|(_, run)| !run.well).count();
    // A connection may break before its server has read the request.
    let lost = record.servers.iter().any(|own| own.since >= sent.at || own.mood != Mood::Well);
    let described = || {
        let runs: Vec<_> = record.runs_of(number).map(|(_, run)| run.clone()).collect();
        format!(
            "{told} after {:?}; {runs:?}; {:?}",
            sent.at.elapsed(),
            record.servers.iter().map(|own| (own.mood, own.member)).collect::<Vec<_>>()
        )
    };
    let nothing_ran = record.runs_of(number).next().is_none();
    let rule = match (failed, lost, sent.errand.route.is_once()) {
        // An order to eject a server takes a request away that may have run.
        (0, true, true) if !nothing_ran => return,
        (0, false, _) => "failures have a cause",
        (0, true, true) => "a request that nothing ran runs at a healthy server",
        (0..=2, _, false) => "a repeatable request is answered by a healthy server",
        _ => return,
    };
    let described = described();
    record.breach(rule, || described);
}

/// A server that has been well for long is not out of service for long, by the admin API's list.
pub(super) fn are_in_service(record: &mut Record, listed: &[(String, Value)]) {
    let now = Instant::now();
    let steady: Vec<usize> = record.steady(now, SETTLED).collect();
    for server in 0..record.servers.len() {
        let entry = listed.iter().find(|(address, _)| address.ends_with(&format!("/upstream{server}")));
        let known = &mut record.servers[server];
        if !steady.contains(&server) || entry.is_some_and(|(_, entry)| in_service(entry)) {
            known.out_since = None;
            continue;
        }
        let out = now - *known.out_since.get_or_insert(now);
        if out > OUT {
            let well = known.since.elapsed();
            record.breach("healthy servers are in service", || {
                let entry = entry.map(|(_, entry)| entry.to_string()).unwrap_or_default();
                format!("server {server}, well for {well:?}, is out since {out:?}: {entry}")
            });
        }
    }
}
