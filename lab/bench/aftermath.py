"""The results of a soak and their bounds: queries by the faults that affected them, memory and descriptors."""

import collections
import csv
import statistics

import callers

# Seconds after a fault in which it still counts as affecting queries.
AFTERMATH = 5.0
SILENT = {"stopped", "cut off"}
NEVER_ASK_TWICE = {"none", "equal"}
# Growth that can be noise.
GROWTH = {"rss_mb": 4.0, "descriptors": 8.0}


def by_fault(rows, past):
    """Returns queries by the fault that affected them: those sent or answered during it or in its aftermath."""
    met = collections.defaultdict(list)
    for row in rows:
        sent, took = row[:2]
        during = (fault for fault, began, ended in past if sent + took >= began and sent < ended + AFTERMATH)
        met[next(during, "nothing")].append(row)
    return met


def counts(rows, late_after):
    """Counts outcomes of queries."""
    kinds = collections.Counter(outcome for *_, outcome, _ in rows)
    took = sorted(took for _, took, *_ in rows)
    return {"queries": len(rows), "late": sum(1 for _, took, outcome, _ in rows
                                              if callers.answered(outcome) and took > late_after),
            "wrong": kinds["wrong"], "silence": kinds["silence"],
            "failed": sum(n for kind, n in kinds.items() if not callers.answered(kind) and kind != "wrong"),
            "reasons": {kind: n for kind, n in kinds.items() if not callers.answered(kind) and kind != "wrong"},
            "hedged": kinds["hedged"], "reconstructed": kinds["reconstructed"], "stand-in": kinds["stand-in"],
            "p99_ms": 1e3 * took[int(0.99 * len(took))] if took else 0.0}


def slope(points):
    """Theil-Sen: the median of the slopes of all pairs of points, of at most 300."""
    points = points[::max(1, len(points) // 300)]
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1:])


def grown(samples, key):
    """Returns the growth over the run, by the slope and by thirds, without the first tenth."""
    points = [(at, sample[key]) for at, sample in samples][len(samples) // 10:]
    third = len(points) // 3
    middle = lambda part: statistics.median(value for _, value in part)  # noqa: E731
    return {"median": middle(points), "most": max(value for _, value in points),
            "slope": slope(points) * (points[-1][0] - points[0][0]),
            "thirds": middle(points[-third:]) - middle(points[:third])}


def verdict(policy, met, past, growth):
    """Returns the bounds that were exceeded."""
    silent = sum(fault in SILENT for fault, *_ in past)
    allowed = 2 * silent if policy in NEVER_ASK_TWICE else 0
    broken = []
    if (failed := sum(count["failed"] for count in met.values())) > allowed:
        broken.append(f"{failed} requests failed, {allowed} may")
    if silence := sum(count["silence"] for count in met.values()):
        broken.append(f"{silence} requests had no response by their deadline")
    if stray := sum(count["wrong"] for fault, count in met.items() if fault != "wrong"):
        broken.append(f"{stray} wrong answers while no worker had that fault")
    for key, limit in GROWTH.items():
        for how in ("slope", "thirds"):
            if growth[key][how] > limit:
                broken.append(f"{key} grew by {growth[key][how]:.1f} ({how}), {limit:g} is allowed")
    return broken


def report(policy, rows, past, samples, faults):
    """Prints the outcomes of a policy's queries by fault; returns the bounds that were exceeded."""
    met = by_fault(rows, past)
    clean = sorted(took for _, took, *_ in met["nothing"])
    late_after = 2 * clean[int(0.99 * len(clean))]
    met = {fault: counts(part, late_after) for fault, part in met.items()}
    growth = {key: grown(samples, key) for key in ("rss_mb", "descriptors", "threads")}
    print(f"\n{policy}: {len(rows)} requests; late is more than {1e3 * late_after:.0f} ms")
    columns = ["queries", "late", "failed", "silence", "wrong", "hedged", "reconstructed", "stand-in", "p99_ms"]
    print("| fault | times | " + " | ".join(columns) + " |\n|---|" + "---|" * (len(columns) + 1))
    for fault in ["nothing", *faults]:
        if fault in met:
            times = sum(kind == fault for kind, *_ in past)
            print(f"| {fault} | {times or ''} | " + " | ".join(f"{met[fault][key]:.0f}" for key in columns) + " |")
    for fault, count in met.items():
        for reason, number in count["reasons"].items():
            print(f"{fault}: {number} x {reason}")
    for key, value in growth.items():
        print(f"{key}: median {value['median']:.1f}, most {value['most']:.1f}, slope over the run {value['slope']:+.2f}, "
              f"last third minus first {value['thirds']:+.2f}")
    return verdict(policy, met, past, growth)


def seconds(rows, past, samples, path):
    """Writes a line per second: the outcomes of the queries sent in it, and the frontend's resources."""
    sent = collections.defaultdict(collections.Counter)
    for at, _, outcome, _ in rows:
        sent[int(at)][outcome] += 1
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["second", "fault", "outcomes", "rss_mb", "descriptors", "threads"])
        for at, sample in samples:
            fault = next((fault for fault, began, ended in past if began <= at < ended), "")
            outcomes = " ".join(f"{kind}={number}" for kind, number in sent[int(at)].items())
            table.writerow([int(at), fault, outcomes, f"{sample['rss_mb']:.1f}", sample["descriptors"],
                            sample["threads"]])
