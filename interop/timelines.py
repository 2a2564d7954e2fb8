"""The pictures of docs/concepts.md: queries of a real run, drawn from what the frontend's admin API tells of them.

Eight workers emulate a model, `big`, that sleeps for 20 ms and answers linearly, and a stand-in of it, `small`, that takes a quarter
of that. One run in fifty takes 60 ms longer. A frontend over them is asked 180 times a second, for some seconds under each policy.
Of the queries that show what a picture is about, the one that was answered neither soonest nor latest is drawn.

Run by `just timelines`, half a minute. It prints what it drew.
"""

import collections
import html
import json
import pathlib
import subprocess
import tempfile
import time
import urllib.request

from processes import PARM, ROOT, Parm, free_port

PICTURES = ROOT / "docs" / "pictures"
WORKERS, RATE, SECONDS, STRAGGLERS, TRIES = 8, 180, 6, 0.02, 5
MODELS = "".join(f"""
[backend.emulated.{name}]
input = [16]
outputs = 4
time_ms = {{ kind = "lognormal", median = {time_ms}, sigma = 0.05 }}
""" for name, time_ms in (("big", 20.0), ("small", 5.0)))

# The defaults, but for what makes a picture: the model is linear, so `mds` codes it without a bundle; with a budget of nearly all, every
# query counts as slower than most, so the frontend keeps what happened to a late one's neighbours too (late is 1.25 medians with it
# or without); and with no spare stand-ins late ones are what stragglers get.
HEDGE = {"policy": "hedge"}
CODED = {"policy": "parm+", "coding": {"code": "mds"}, "hedge": {"budget": {"ratio": 0.99}}}
SPARE = {"policy": "stand-in", "stand_in": {"model": "small"}, "hedge": None}
LATE = {"policy": "stand-in", "stand_in": {"model": "small", "spare": False}, "hedge": None}

# What is too early by less than this is not worth a picture.
WORTH_US = 20_000


# The run.

def ask(url, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or "null")


class Fleet:
    """The workers and the frontend over them."""

    def __init__(self, folder):
        config = pathlib.Path(folder) / "worker.toml"
        config.write_text(MODELS)
        self.workers, self.front = [], None
        for seed in range(WORKERS):
            self.workers.append(Parm("worker", "--config", str(config), "--instances", "1", "--faults", log=subprocess.DEVNULL))
            straggle = {"seed": seed, "delay_ms": {"kind": "constant", "value": 60.0}, "delay_rate": STRAGGLERS}
            ask(f"http://{self.workers[-1].metrics}/faults", straggle)
        urls = [word for worker in self.workers for word in ("--worker", f"http://{worker.http}")]
        address = f"127.0.0.1:{free_port()}"
        self.admin = f"http://{address}/admin/v1"
        self.front = Parm("serve", *urls, "--admin", address, log=subprocess.DEVNULL)
        while sum(one["state"] == "ready" for one in ask(f"{self.admin}/instances")) < WORKERS:
            time.sleep(0.05)

    def stories(self, settings):
        """What the frontend keeps of some seconds under these settings."""
        ask(f"{self.admin}/settings", settings, "PATCH")
        began = time.time() * 1e3
        subprocess.run([PARM, "load", f"http://{self.front.http}", "--model", "big", "--rate", str(RATE), "--seconds", str(SECONDS)],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        time.sleep(0.5)  # predictions that come after all
        kept = ask(f"{self.admin}/queries?model=big&limit=1024")["queries"]
        return [ask(f"{self.admin}/queries/{query['id']}") for query in kept if query["at"] > began]

    def stop(self):
        for process in [self.front, *self.workers]:
            if process:
                process.stop()


# What fits.

def steps(query):
    return [step["what"] for step in query["timeline"]]


def step(query, what):
    return next(step for step in query["timeline"] if step["what"] == what)


def end_of(query, job):
    """When a job for a query was done: told, or the answer itself."""
    ends = [step["at_us"] for step in query["timeline"] if step.get("job") == job and step["what"].endswith("_in")]
    return ends[0] if ends else query["took_us"]


def rescued(stories, outcome, *path):
    """Queries with this outcome that took these steps, whose prediction came much later."""
    return [query for query in stories if query["outcome"] == outcome and steps(query) == ["arrived", *path, "prediction_in"]
            and query["alone_us"] - query["took_us"] > WORTH_US]


def groups(stories):
    """Coding groups of three of which all members are known, one of them reconstructed and the others answered exactly."""
    members = collections.defaultdict(dict)
    for query in stories:
        if "grouped" in steps(query) and "parity_given" in steps(query):
            joined = step(query, "grouped")
            members[joined["group"], joined["k"]][joined["slot"]] = query
    full = [[slots[slot] for slot in sorted(slots)] for (_, k), slots in members.items() if k == 3 and len(slots) == k]
    plain = {"queued", "hedged", "failed", "retried"}
    return [group for group in full if sorted(query["outcome"] for query in group) == ["exact", "exact", "reconstructed"]
            and not any(plain.intersection(steps(query)) for query in group) and "late" in steps(lost_of(group))
            and lost_of(group)["alone_us"] - lost_of(group)["took_us"] > WORTH_US]


def lost_of(group):
    return next(query for query in group if query["outcome"] == "reconstructed")


def middle(found, took):
    return sorted(found, key=took)[len(found) // 2]


# The drawing. Colours are those of the frontend's page; no variables, which not every viewer of SVG knows.

WIDTH, LEFT, RIGHT, LANE, TOP = 760, 128, 736, 30, 52
KINDS = {"prediction": ("#5b6470", "#a7b0bd"), "hedge": ("#1f77b4", "#62b0ee"), "parity": ("#d1620a", "#ff9d4d"),
         "stand-in": ("#2b8a3e", "#63cf7c")}


def style():
    def colours(at):
        back, text, soft, line, late, inside = [("#ffffff", "#14161a"), ("#1d1f23", "#e6e8ec"), ("#5a606a", "#a2aab5"),
                                                ("#dcdfe4", "#343a44"), ("#8a5c00", "#e0b04a"), ("#ffffff", "#14161a")]
        pick = lambda pair: pair[at]
        bars = "".join(f".{kind}{{fill:{pick(pair)};stroke:{pick(pair)}}}" for kind, pair in KINDS.items())
        return (f".back{{fill:{pick(back)}}}text{{fill:{pick(text)}}}.soft{{fill:{pick(soft)}}}.grid{{stroke:{pick(line)}}}"
                f".lane{{stroke:{pick(line)}}}.band{{fill:{pick(line)}}}.late{{stroke:{pick(late)}}}text.late{{fill:{pick(late)}}}"
                f".answered{{stroke:{pick(text)}}}.dot{{fill:{pick(text)}}}text.inside{{fill:{pick(inside)}}}{bars}")
    return ("text{font:13px system-ui,'DejaVu Sans',sans-serif;stroke:none}.bold{font-weight:600}.soft{font-size:12px}"
            "rect.job{stroke:none}rect.after{stroke:none;opacity:.35}.band{opacity:.55}line.late{stroke-dasharray:3 3}"
            "line.answered{stroke-width:1.6}.thin{fill:none;stroke-width:1.4;stroke-dasharray:2 3}.way{fill:none;stroke-width:1.4}"
            f"{colours(0)}@media(prefers-color-scheme:dark){{{colours(1)}}}")


class Picture:
    """Lanes under each other over an axis in milliseconds."""

    def __init__(self, lanes, end_us):
        self.lanes, self.end = lanes, end_us * 1.03
        self.floor = TOP + len(lanes) * LANE
        self.parts = []
        tick = next(ms for ms in (5, 10, 20, 50, 100) if self.end / 1e3 / ms <= 10)
        for ms in range(0, int(self.end / 1e3) + 1, tick):
            x = self.x(ms * 1e3)
            self.put(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{self.floor}"/>')
            self.text(x, self.floor + 17, f"{ms} ms" if ms else "0", "soft", "middle")
        for at, label in enumerate(lanes):
            self.text(LEFT - 10, self.y(at) + 4.5, label, "", "end")

    def x(self, us):
        return round(LEFT + us / self.end * (RIGHT - LEFT), 1)

    def y(self, lane):
        return TOP + lane * LANE + LANE / 2

    def put(self, part):
        self.parts.append(part)

    def text(self, x, y, words, kind="", anchor="start"):
        kind = f' class="{kind}"' if kind else ""
        self.put(f'<text{kind} x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>')

    def job(self, lane, kind, begun, ended, words, needed=None):
        """A bar for a job; what nobody waits for any more is pale."""
        needed = ended if needed is None else min(needed, ended)
        top, begin, until, end = self.y(lane) - 10, self.x(begun), self.x(needed), self.x(ended)
        self.put(f'<rect class="job {kind}" x="{begin}" y="{top}" width="{max(2, round(until - begin, 1))}" height="20" rx="3"/>')
        if end > until:
            self.put(f'<rect class="after {kind}" x="{until}" y="{top}" width="{round(end - until, 1)}" height="20" rx="3"/>')
        if until - begin > 7.2 * len(words) + 10:
            self.text(begin + 7, self.y(lane) + 4.5, words, "inside")
        else:
            self.text(end + 6, self.y(lane) + 4.5, words)

    def waits(self, lane, us, until):
        """A query, from its arrival to its answer."""
        x, end, y = self.x(us), self.x(until), self.y(lane)
        self.put(f'<line class="answered" x1="{x}" x2="{end}" y1="{y}" y2="{y}"/>')
        self.put(f'<circle class="dot" cx="{x}" cy="{y}" r="4"/><circle class="dot" cx="{end}" cy="{y}" r="4"/>')

    def mark(self, kind, us, words, anchor, row, first=0):
        """A line across the lanes, with its words above them."""
        x, y = self.x(us), TOP - 8 - 18 * row
        self.put(f'<line class="{kind}" x1="{x}" x2="{x}" y1="{y - 11}" y2="{self.floor if first == 0 else self.y(first)}"/>')
        self.text(x + (-6 if anchor == "end" else 6), y, words, f"{kind} bold" if kind == "late" else "bold", anchor)

    def save(self, name, title, description):
        height = self.floor + 28
        body = "\n".join(self.parts)
        drawn = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
                 f'aria-labelledby="title desc">\n<title id="title">{html.escape(title)}</title>\n'
                 f'<desc id="desc">{html.escape(description)}</desc>\n<style>{style()}</style>\n'
                 f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>\n{body}\n</svg>\n')
        (PICTURES / name).write_text(drawn)
        print(f"docs/pictures/{name}: {len(drawn)} bytes. {description}")


def ms(us):
    return f"{us / 1e3:.1f} ms"


def told(query):
    """A query's steps in the frontend's own words."""
    return " ".join(f"{ms(step['at_us'])}: {step['text']}" for step in query["timeline"])


def second_try(name, title, query, kind, begun):
    """A late query, whose prediction comes after something else has answered it."""
    given, other, came = step(query, "given"), step(query, begun), step(query, "prediction_in")["at_us"]
    picture = Picture(["query", f"instance {given['instance']}", f"instance {other['instance']}"], came)
    done = end_of(query, other["job"])
    late = next((step["at_us"] for step in query["timeline"] if step["what"] == "late"), None)
    picture.job(1, "prediction", given["at_us"], came, "prediction", query["took_us"])
    picture.job(2, kind, other["at_us"], done, kind)
    if query["took_us"] - done > 2_000:
        x, y = picture.x(done), picture.y(2)
        picture.put(f'<path class="thin {kind}" d="M{x} {y + 13}H{picture.x(query["took_us"])}"/>')
        picture.text(picture.x(query["took_us"]) + 6, y + 4.5, "held back until its grace is over", "soft")
    if late is not None:
        picture.mark("late", late, f"late, {ms(late)}", "end", 0)
    picture.mark("answered", query["took_us"], f"answered, {ms(query['took_us'])}", "start", 1 if late else 0)
    picture.waits(0, 0, query["took_us"])
    picture.save(name, title, f"{query['why']} {told(query)}")


def group(name, title, members):
    """A coding group as it fills, and the decoding of the member that is late."""
    parity = [step(query, "parity_given") for query in members]
    # Each query tells times since its own arrival; the parity's start is the same moment for all.
    since = [max(p["at_us"] for p in parity) - p["at_us"] for p in parity]
    lost = next(at for at, query in enumerate(members) if query["outcome"] == "reconstructed")
    late, answer = since[lost] + step(members[lost], "late")["at_us"], since[lost] + members[lost]["took_us"]
    ends = [at + end_of(query, step(query, "given")["job"]) for at, query in zip(since, members)]
    picture = Picture([f"{n + 1}: instance {step(query, 'given')['instance']}" for n, query in enumerate(members)]
                      + [f"instance {parity[0]['instance']}"], max(ends))
    joined = [at + step(query, "grouped")["at_us"] for at, query in zip(since, members)]
    x, full = picture.x(min(joined)), picture.x(max(joined))
    picture.put(f'<rect class="band" x="{x}" y="{TOP}" width="{round(full - x, 1)}" height="{picture.floor - TOP}"/>')
    picture.text(x, TOP - 8, "the group fills", "soft")
    begun, done = since[0] + parity[0]["at_us"], since[lost] + step(members[lost], "parity_in")["at_us"]
    for lane, query in enumerate(members):
        words = "prediction" if lane != lost else "prediction of the late one"
        picture.job(lane, "prediction", since[lane] + step(query, "given")["at_us"], ends[lane], words, answer if lane == lost else None)
    picture.job(len(members), "parity", begun, done, "parity of all three")
    picture.mark("late", late, f"late, {ms(late - since[lost])} old", "end", 0)
    picture.mark("answered", answer, "decoded and answered", "start", 1)
    for lane, end in [*enumerate(ends), (len(members), done)]:
        if lane != lost:
            picture.put(f'<path class="way parity" style="fill:none" d="M{picture.x(end)} {picture.y(lane)}L{picture.x(answer)} {picture.y(lost)}"/>')
    for lane, at in enumerate(since):
        picture.put(f'<circle class="dot" cx="{picture.x(at)}" cy="{picture.y(lane)}" r="4"/>')
    picture.put(f'<circle class="dot" cx="{picture.x(answer)}" cy="{picture.y(lost)}" r="4"/>')
    picture.save(name, title, f"{members[lost]['why']} Of member {lost + 1}: {told(members[lost])}")


WANTED = [
    (HEDGE, lambda kept: rescued(kept, "hedged", "given", "late", "hedged", "answered"),
     lambda query: second_try("hedge.svg", "A hedge", query, "hedge", "hedged")),
    (CODED, groups, lambda members: group("group.svg", "A coding group, and a reconstruction", members)),
    (SPARE, lambda kept: rescued(kept, "stand-in", "given", "stand_in_given", "stand_in_in", "held_back", "answered"),
     lambda query: second_try("stand-in-spare.svg", "A spare stand-in", query, "stand-in", "stand_in_given")),
    (LATE, lambda kept: rescued(kept, "stand-in", "given", "late", "stand_in_given", "stand_in_in", "answered"),
     lambda query: second_try("stand-in-late.svg", "A late stand-in", query, "stand-in", "stand_in_given")),
]


def draw(kept, fitting, drawing):
    """Draws what fits best; false where nothing does."""
    found = fitting(kept)
    if found:
        drawing(middle(found, lambda one: (lost_of(one) if isinstance(one, list) else one)["took_us"]))
    return bool(found)


def main():
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(folder)
        try:
            for settings, fitting, drawing in WANTED:
                if not any(draw(fleet.stories(settings), fitting, drawing) for _ in range(TRIES)):
                    raise SystemExit(f"nothing to draw under {settings['policy']} in {TRIES} tries")
        finally:
            fleet.stop()


if __name__ == "__main__":
    main()
