"""The report of a soak: one HTML file, without scripts, that loads nothing."""

from __future__ import annotations

import html
import itertools
from typing import Final

from e2e.soak.chart import Band, Line, chart, lanes
from e2e.soak.recording import DOWN, FAULTS, NodeSample, Recording
from e2e.soak.verdict import (
    BUCKET_SECONDS,
    MIB,
    State,
    down_part,
    latency_buckets,
    latency_rows,
    verdicts,
)

GAP_SAMPLES: Final = 4
STYLE: Final = """
:root { color-scheme: light dark; --text: #1d232b; --soft: #69727d; --rule: #dfe3e8;
  --page: #fff; --down: #c9d1da55; --a: #1f6fb2; --b: #c2571a; --c: #3c8d5a; --d: #7a5ab5;
  --good: #2c7a4b; --bad: #b3261e; --open: #8a6d00; }
@media (prefers-color-scheme: dark) { :root { --text: #e3e7ec; --soft: #98a2ad;
  --rule: #343b44; --page: #15191e; --down: #4a556255; --a: #69b0ea; --b: #ec9460;
  --c: #7dc698; --d: #b39be6; --good: #7dc698; --bad: #ff8a80; --open: #e0c060; } }
body { margin: 2rem auto; padding: 0 1rem; max-width: 980px; background: var(--page);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; } .soft, code { color: var(--soft); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
th { font-weight: 600; } td.n, th.n { text-align: right; }
th.rule { width: 36%; }
.holds { color: var(--good); } .broken { color: var(--bad); } .open { color: var(--open); }
.state { font-weight: 600; white-space: nowrap; }
figure { margin: 1.2rem 0; } figcaption { margin-bottom: .2rem; }
svg { width: 100%; height: auto; display: block; }
svg text { font-size: 11px; fill: var(--soft); } text.y { text-anchor: end; }
text.x { text-anchor: middle; } .grid { stroke: var(--rule); } .down { fill: var(--down); }
.line { fill: none; stroke-width: 1.4; stroke-linejoin: round; }
.l0 { stroke: var(--a); } .l1 { stroke: var(--b); } .l2 { stroke: var(--c); }
.key { margin-left: .9rem; } .key::before { content: ""; display: inline-block; width: 1.1em;
  height: .25em; margin-right: .35em; vertical-align: middle; background: var(--a); }
.k1::before { background: var(--b); } .k2::before { background: var(--c); }
.b0 { fill: var(--soft); } .b1 { fill: var(--a); } .b2 { fill: var(--b); } .b3 { fill: var(--d); }
"""


def render(recording: Recording) -> str:
    """Return the report."""
    seconds = max(recording.duration, 1.0)
    bands = [
        Band(each.kind, f"{each.kind}: {each.what}", each.begin, min(each.end, seconds))
        for each in recording.intervals
    ]
    down = [each for each in bands if each.kind == DOWN]
    fast, slow = (latency_buckets(recording.latencies, part) for part in (0.5, 0.99))
    probes = latency_buckets(recording.probes, 0.5)
    width = BUCKET_SECONDS * 1.5
    milliseconds = [
        Line(name, [(at, value * 1000) for at, value in points], width)
        for name, points in (("p50", fast), ("p99", slow), ("sync of the host's disk", probes))
    ]
    log_title = "Latency of confirms of the healthy client"
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Soak of Headrace</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>
<h1>Soak of {recording.queues:,} queues on three nodes</h1>
<p>{seconds / 60:.1f} minutes under load. A node was down, or not ready again, for
{down_part(recording):.0%} of that time. {recording.visits:,} messages went through the queues, and
{recording.confirmed:,} through the healthy client's.</p>
<p><code>{html.escape(recording.command)}</code></p>
<h2>Verdicts</h2>{_verdict_table(recording)}
<h2>Latency</h2>{_latency_table(recording)}
<p class="soft">The healthy client stays at n1, which is never killed. It publishes at a fixed pace,
whether or not confirms come; a latency counts from when the publish was due.</p>
<h2>Over time</h2>
{lanes(FAULTS, bands, seconds)}
{chart(log_title, "ms (logarithmic)", milliseconds, down, seconds, logarithmic=True)}
{chart("Resident memory", "MiB", _lines(recording, "resident_bytes", MIB), down, seconds)}
{chart("File handles", "count", _lines(recording, "descriptors", 1), down, seconds)}
{chart("Data on disk", "MiB", _lines(recording, "store_bytes", MIB), down, seconds)}
<p class="soft">Shaded: a node is down, or not ready again.</p>
</html>
"""


def _verdict_table(recording: Recording) -> str:
    words = {State.HOLDS: "holds", State.BROKEN: "broken", State.OPEN: "no verdict"}
    rows = "".join(
        f'<tr><td class="state {each.state}">{words[each.state]}</td>'
        f"<td>{html.escape(each.rule)}</td><td>{html.escape(each.text)}</td></tr>"
        for each in verdicts(recording)
    )
    return f"<table><tr><th>Verdict<th class=rule>Rule<th>Measured</tr>{rows}</table>"


def _latency_table(recording: Recording) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(row.name)}</td><td class=n>{row.count:,}</td>"
        f"<td class=n>{row.failed:,}</td><td class=n>{row.p50 * 1000:.1f}</td>"
        f"<td class=n>{row.p99 * 1000:.1f}</td><td class=n>{row.longest * 1000:.0f}</td></tr>"
        for row in latency_rows(recording)
    )
    head = "<th>While<th class=n>Publishes<th class=n>Not confirmed"
    return (
        f"<table><tr>{head}<th class=n>p50 ms<th class=n>p99 ms<th class=n>longest ms</tr>"
        f"{rows}</table>"
    )


def _lines(recording: Recording, field: str, unit: float) -> list[Line]:
    nodes: dict[str, list[NodeSample]] = {}
    for each in recording.samples:
        nodes.setdefault(each.node, []).append(each)
    return [
        Line(name, [(e.at, getattr(e, field) / unit) for e in samples], _gap(samples))
        for name, samples in sorted(nodes.items())
    ]


def _gap(samples: list[NodeSample]) -> float:
    """Return seconds without a sample that mean that the node was down."""
    steps = sorted(b.at - a.at for a, b in itertools.pairwise(samples))
    return GAP_SAMPLES * steps[len(steps) // 2] if steps else 1.0
