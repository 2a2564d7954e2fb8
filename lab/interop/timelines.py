"""Draws the pictures of docs/concepts.md: queries of a real run, from the frontend's admin API.

Eight workers emulate a model, `big`, that sleeps for 20 ms and answers linearly, and its stand-in, `small`, that takes a
quarter of that. Three runs of a hundred take 60 ms longer. A frontend over them receives 180 queries per second, for some
seconds under each policy. Of the queries that show a picture's subject, the one of median latency is drawn.

Run by `just timelines`, about a minute. It prints what it drew.
"""

import collections
import contextlib
import html
import json
import pathlib
import subprocess
import tempfile
import time
import urllib.request

from processes import PARM, ROOT, Parm, free_port

PICTURES = ROOT / "docs" / "pictures"
WORKERS, RATE, SECONDS, STRAGGLERS, TRIES = 8, 180, 6, 0.03, 8
MODELS = "".join(f"""
[backend.emulated.{name}]
input = [16]
outputs = 4
time_ms = {{ kind = "lognormal", median = {time_ms}, sigma = 0.05 }}
""" for name, time_ms in (("big", 20.0), ("small", 5.0)))

# The defaults, with changes for the pictures. The model is linear, so `mds` codes it without a bundle. With a budget of a
# half every query slower than the median counts as slow, and the frontend keeps its events: thus it also has those of a
# late one's neighbours (late is 1.25 medians with it or without).
HEDGE = {"policy": "hedge"}
CODED = {"policy": "parm+", "coding": {"code": "mds"}, "hedge": {"budget": {"ratio": 0.5}}}
LATE = {"policy": "stand-in", "stand_in": {"model": "small"}, "hedge": None}

# Answers or groups that gain less than this are not drawn.
WORTH_US, FILLS_US = 20_000, 3_000


# The run.

def ask(url, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or "null")


class Fleet:
    """Starts the workers and the frontend over them."""

    def __init__(self, stack):
        config = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / "worker.toml"
        config.write_text(MODELS)
        start = lambda *arguments: stack.enter_context(Parm(*arguments, log=subprocess.DEVNULL))  # noqa: E731
        workers = [start("worker", "--config", str(config), "--instances", "1", "--faults") for _ in range(WORKERS)]
        for seed, worker in enumerate(workers):
            straggle = {"seed": seed, "delay_ms": {"kind": "constant", "value": 60.0}, "delay_rate": STRAGGLERS}
            ask(f"http://{worker.metrics}/faults", straggle)
        urls = [word for worker in workers for word in ("--worker", f"http://{worker.http}")]
        address = f"127.0.0.1:{free_port()}"
        self.admin = f"http://{address}/admin/v1"
        self.front = start("serve", *urls, "--admin", address)
        until = time.monotonic() + 30
        while sum(one["state"] == "ready" for one in ask(f"{self.admin}/instances")) < WORKERS:
            if time.monotonic() > until:
                raise SystemExit(f"not all of {WORKERS} workers joined within 30 s")
            time.sleep(0.05)

    def stories(self, settings):
        """Returns the frontend's events of some seconds under these settings."""
        ask(f"{self.admin}/settings", settings, "PATCH")
        began = time.time() * 1e3
        load = [PARM, "load", f"http://{self.front.http}", "--model", "big", "--rate", str(RATE), "--seconds", str(SECONDS)]
        subprocess.run(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)  # its verdict is about p99.9
        time.sleep(0.5)  # late predictions
        kept = ask(f"{self.admin}/queries?model=big&limit=1024")["queries"]
        return [ask(f"{self.admin}/queries/{query['id']}") for query in kept if query["at"] > began]


# The choice of queries.

def steps(query):
    return [step["what"] for step in query["timeline"]]


def step(query, what):
    return next(step for step in query["timeline"] if step["what"] == what)


def end_of(query, job):
    """Returns when a job for a query was done: its event, or the answer itself."""
    ends = [step["at_us"] for step in query["timeline"] if step.get("job") == job and step["what"].endswith("_in")]
    return ends[0] if ends else query["took_us"]


def rescued(stories, outcome, *path):
    """Returns queries with this outcome and these steps whose prediction came much later."""
    return [query for query in stories if query["outcome"] == outcome and steps(query) == ["arrived", *path, "prediction_in"]
            and query["alone_us"] - query["took_us"] > WORTH_US]


def groups(stories):
    """Returns coding groups of three or more whose members are all known: one reconstructed, the others answered
    exactly."""
    members = collections.defaultdict(dict)
    for query in stories:
        if "grouped" in steps(query) and "parity_given" in steps(query):
            joined = step(query, "grouped")
            members[joined["group"], joined["k"]][joined["slot"]] = query
    full = [[slots[slot] for slot in sorted(slots)] for (_, k), slots in members.items() if k > 2 and len(slots) == k]
    plain = {"queued", "hedged", "failed", "retried"}
    return [group for group in full if sorted(query["outcome"] for query in group)[-2:] == ["exact", "reconstructed"]
            and not any(plain.intersection(steps(query)) for query in group) and "late" in steps(lost_of(group))
            and lost_of(group)["alone_us"] - lost_of(group)["took_us"] > WORTH_US and filled(group) > FILLS_US]


def filled(group):
    """Returns the time in which a group filled: from its first member's arrival to its last one's, as the parity's start
    shows."""
    since = [step(query, "parity_given")["at_us"] for query in group]
    return max(since) - min(since)


def lost_of(group):
    return next(query for query in group if query["outcome"] == "reconstructed")


def middle(found, took):
    return sorted(found, key=took)[len(found) // 2]


# The drawing. Colours are those of the frontend's page; no variables, which not every viewer of SVG knows.

WIDTH, LEFT, RIGHT, LANE, ROW = 760, 166, 736, 30, 18
# Marks that are close to each other share their text.
CLOSE_US = 1_000
KINDS = {"prediction": ("#5b6470", "#a7b0bd"), "hedge": ("#1f77b4", "#62b0ee"), "parity": ("#d1620a", "#ff9d4d"),
         "stand-in": ("#2b8a3e", "#63cf7c")}
SHADES = {"back": ("#ffffff", "#14161a"), "text": ("#1d1f23", "#e6e8ec"), "soft": ("#5a606a", "#a2aab5"),
          "line": ("#dcdfe4", "#343a44"), "late": ("#8a5c00", "#e0b04a")}


def style():
    """Shapes first, then colours for light and for dark."""
    def colours(at):
        back, text, soft, line, late = (shade[at] for shade in SHADES.values())
        bars = "".join(f"rect.{kind}{{fill:{pair[at]}}}path.{kind}{{stroke:{pair[at]}}}" for kind, pair in KINDS.items())
        return (f".back{{fill:{back}}}text,.dot{{fill:{text}}}text.soft{{fill:{soft}}}text.late{{fill:{late}}}.band{{fill:{line}}}"
                f"line.grid{{stroke:{line}}}line.late{{stroke:{late}}}line.answered{{stroke:{text}}}{bars}")
    return ("text{font:13px system-ui,'DejaVu Sans',sans-serif}.bold{font-weight:600}.soft{font-size:12px}rect.pale{opacity:.3}"
            ".band{opacity:.55}line.late{stroke-dasharray:3 3}line.answered{stroke-width:1.6}path{fill:none;stroke-width:1.4}"
            f"path.held{{stroke-dasharray:2 3}}{colours(0)}@media(prefers-color-scheme:dark){{{colours(1)}}}")


class Picture:
    """Lanes over an axis in milliseconds, with rows for text above them."""

    def __init__(self, lanes, rows, end_us):
        self.end, self.top = end_us * 1.03, 12 + ROW * rows
        self.floor = self.top + len(lanes) * LANE
        self.parts = []
        tick = next(tick for tick in (5, 10, 20, 50, 100) if self.end / 1e3 / tick <= 10)
        for at in range(0, int(self.end / 1e3) + 1, tick):
            x = self.x(at * 1e3)
            self.put(f'<line class="grid" x1="{x}" x2="{x}" y1="{self.top}" y2="{self.floor}"/>')
            self.text(x, self.floor + 17, f"{at} ms" if at else "0", "soft", "middle")
        for lane, label in enumerate(lanes):
            self.text(LEFT - 12, self.y(lane) + 4.5, label, "", "end")

    def x(self, us):
        return round(LEFT + us / self.end * (RIGHT - LEFT), 1)

    def y(self, lane):
        return self.top + lane * LANE + LANE / 2

    def put(self, part):
        self.parts.append(part)

    def text(self, x, y, words, kind="", anchor="start"):
        kind = f' class="{kind}"' if kind else ""
        self.put(f'<text{kind} x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>')

    def bar(self, lane, kind, begun, ended):
        begin, end = self.x(begun), self.x(ended)
        width = max(2, round(end - begin, 1))
        self.put(f'<rect class="{kind}" x="{begin}" y="{self.y(lane) - 10}" width="{width}" height="20" rx="3"/>')

    def in_vain(self, lane, kind, answered, ended):
        """Draws the rest of a job after its query was answered."""
        self.bar(lane, f"{kind} pale", answered, ended)
        self.text(self.x(answered) + 8, self.y(lane) + 4.5, f"comes at {ms(ended)}, too late")

    def dot(self, lane, us):
        self.put(f'<circle class="dot" cx="{self.x(us)}" cy="{self.y(lane)}" r="4"/>')

    def mark(self, kind, us, words, row, anchor="start"):
        """Draws a line across the lanes, with its text in a row above them (0 is the lowest), on the other side if
        necessary."""
        x, y = self.x(us), self.top - 7 - ROW * row
        anchor = "end" if x + 6 + 8 * len(words) > WIDTH else anchor
        self.put(f'<line class="{kind}" x1="{x}" x2="{x}" y1="{y - 11}" y2="{self.floor}"/>')
        self.text(x + (-6 if anchor == "end" else 6), y, words, f"{kind} bold", anchor)

    def save(self, name, title, description):
        height = self.floor + 28
        body = "\n".join(self.parts)
        drawn = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
                 f'role="img" aria-labelledby="title desc">\n<title id="title">{html.escape(title)}</title>\n'
                 f'<desc id="desc">{html.escape(description)}</desc>\n<style>{style()}</style>\n'
                 f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>\n{body}\n</svg>\n')
        (PICTURES / name).write_text(drawn)
        print(f"docs/pictures/{name}, {len(drawn)} bytes: {description}")


def ms(us):
    return f"{us / 1e3:.1f} ms"


def told(query):
    """Returns a query's steps in the frontend's own words."""
    return " ".join(f"{ms(step['at_us'])}: {step['text']}" for step in query["timeline"])


def rescue(name, title, query, kind, began):
    """Draws a late query, and the answer that came before its prediction."""
    given, other, came = step(query, "given"), step(query, began), step(query, "prediction_in")["at_us"]
    late = next((step["at_us"] for step in query["timeline"] if step["what"] == "late"), None)
    answered, done = query["took_us"], end_of(query, other["job"])
    lanes = ["query", f"prediction, instance {given['instance']}", f"{kind}, instance {other['instance']}"]
    picture = Picture(lanes, 1 if late is None else 2, came)
    picture.bar(1, "prediction", given["at_us"], answered)
    picture.in_vain(1, "prediction", answered, came)
    picture.bar(2, kind, other["at_us"], done)
    if late is not None:
        picture.mark("late", late, f"late, {ms(late)}", 0, "end")
    picture.mark("answered", answered, f"answered, {ms(answered)}", 0 if late is None else 1)
    if answered - done > CLOSE_US:
        picture.put(f'<path class="held {kind}" d="M{picture.x(done)} {picture.y(2)}H{picture.x(answered)}"/>')
        picture.text(picture.x(answered) + 8, picture.y(2) + 4.5, "held back until its grace is over", "soft")
    picture.put(f'<line class="answered" x1="{picture.x(0)}" x2="{picture.x(answered)}" y1="{picture.y(0)}" y2="{picture.y(0)}"/>')
    picture.dot(0, 0)
    picture.dot(0, answered)
    picture.save(name, title, f"{query['why']} {told(query)}")


def decoding(name, title, members):
    """Draws a coding group as it fills, and the reconstruction of its late member."""
    parities = [step(query, "parity_given") for query in members]
    # Every query's times count from its own arrival; the parity's start is the same moment for all.
    arrived = [parities[0]["at_us"] - parity["at_us"] for parity in parities]
    lost, parity_lane = members.index(lost_of(members)), len(members)
    late, answered = (arrived[lost] + us for us in (step(members[lost], "late")["at_us"], members[lost]["took_us"]))
    begun = [at + step(query, "given")["at_us"] for at, query in zip(arrived, members)]
    ended = [at + end_of(query, step(query, "given")["job"]) for at, query in zip(arrived, members)]
    encoded, parity_in = parities[0]["at_us"], arrived[lost] + step(members[lost], "parity_in")["at_us"]
    lanes = [f"query {lane + 1}, instance {step(query, 'given')['instance']}" for lane, query in enumerate(members)]
    apart = answered - late > CLOSE_US
    picture = Picture([*lanes, f"parity, instance {parities[0]['instance']}"], 2 + apart, max(ended))
    open_at, full_at = (picture.x(end(begun)) for end in (min, max))
    picture.put(f'<rect class="band" x="{open_at}" y="{picture.top}" width="{round(full_at - open_at, 1)}" '
                f'height="{picture.floor - picture.top}"/>')
    picture.text(open_at, picture.top - 7, "the group fills", "soft")
    for lane in range(len(members)):
        picture.bar(lane, "prediction", begun[lane], answered if lane == lost else ended[lane])
    picture.in_vain(lost, "prediction", answered, ended[lost])
    picture.bar(parity_lane, "parity", encoded, parity_in)
    if apart:
        picture.mark("late", late, f"query {lost + 1} is late", 1, "end")
    picture.mark("answered", answered, f"query {lost + 1} decoded and answered, {ms(members[lost]['took_us'])} old", 1 + apart)
    for lane, end in [*enumerate(ended), (parity_lane, parity_in)]:
        if lane != lost:
            picture.put(f'<path class="parity" d="M{picture.x(end)} {picture.y(lane)}L{picture.x(answered)} {picture.y(lost)}"/>')
    if answered - max(parity_in, *(end for lane, end in enumerate(ended) if lane != lost)) > CLOSE_US:
        picture.text(picture.x(answered) + 8, picture.y(parity_lane) + 4.5, "held back until its grace is over", "soft")
    for lane, at in enumerate(arrived):
        picture.dot(lane, at)
    picture.dot(lost, answered)
    picture.save(name, title, f"{members[lost]['why']} Of query {lost + 1}: {told(members[lost])}")


WANTED = [
    (HEDGE, lambda kept: rescued(kept, "hedged", "given", "late", "hedged", "answered"),
     lambda query: rescue("hedge.svg", "A hedge", query, "hedge", "hedged")),
    (CODED, groups, lambda members: decoding("group.svg", "A coding group, and a reconstruction", members)),
    # Late for its stand-in, and slightly later for a hedge.
    (LATE, lambda kept: rescued(kept, "stand-in", "given", "late", "stand_in_given", "late", "stand_in_in", "answered"),
     lambda query: rescue("stand-in-late.svg", "A late stand-in", query, "stand-in", "stand_in_given")),
]


def draw(kept, fitting, drawing):
    """Draws the best match; returns false if there is none."""
    found = fitting(kept)
    if found:
        drawing(middle(found, lambda one: (lost_of(one) if isinstance(one, list) else one)["took_us"]))
    return bool(found)


def main():
    with contextlib.ExitStack() as stack:
        fleet = Fleet(stack)
        for settings, fitting, drawing in WANTED:
            if not any(draw(fleet.stories(settings), fitting, drawing) for _ in range(TRIES)):
                raise SystemExit(f"nothing to draw under {settings['policy']} in {TRIES} tries")


if __name__ == "__main__":
    main()
