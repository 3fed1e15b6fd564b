"""The report of a replay: one HTML file that holds everything it needs and runs no script.

Each chart has a table with its numbers. All names come from outside and are escaped; a Content-Security-Policy in the
file allows its own style sheet and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from html import escape

from gangline.replay import charts
from gangline.replay.figures import NEVER, WAITS, Figures, Replayed
from gangline.replay.recording import ReplaySample

MOST_PROFILES = charts.MOST_CURVES
"""Profiles in one report."""
_ROWS = 12
"""Rows of a table with numbers over time."""
_STYLE = (
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1c2430;--faint:#55606e;--line:#d5dae1}"
    "@media (prefers-color-scheme:dark){:root{--paper:#12171e;--ink:#e6eaf0;--faint:#a9b4c2;--line:#333d4a}}"
    "body{background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:0 auto;"
    "padding:1rem}h1{margin-bottom:0}p.about,figcaption{color:var(--faint)}"
    "section{margin-top:2.5rem}figure{margin:0}.chart{width:100%;max-width:60rem;height:auto;display:block}"
    ".legend{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1.5rem;padding:0;margin:.5rem 0}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.25rem .75rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}summary{cursor:pointer;margin:.5rem 0}" + charts.STYLE
)


def report(replayed: Replayed) -> str:
    """The file."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    names = ", ".join(escape(each.profile) for each in replayed.profiles)
    about = (
        f"{', '.join(map(escape, replayed.trace))}: {replayed.pods:,} pods of {replayed.jobs:,} jobs on "
        f"{replayed.nodes:,} nodes with {replayed.gpus:,} GPUs, under {names}"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Replay: {names}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>Replay of a trace</h1>\n<p class="about">{about}</p>\n' + "\n".join(_sections(replayed.profiles)) + "\n"
        "</main>\n</body>\n</html>\n"
    )


def _sections(found: Sequence[Figures]) -> Iterable[str]:
    yield _section("Figures", _table("Figures", ("Profile", *(each.profile for each in found)), _summary(found)))
    yield _over_time(
        found,
        "allocation",
        "Allocation",
        "GPUs that pods have, as a part of all GPUs. Parts of GPUs count as parts.",
        "% of all GPUs",
        lambda sample: 100 * sample.allocated,
    )
    yield _over_time(
        found,
        "fragmentation",
        "Fragmentation",
        "Free GPUs that are of no use to the pods of the trace: each kind of pod counts by how many there are of it.",
        "% of all GPUs",
        lambda sample: 100 * sample.fragmented,
    )
    yield _waits(found)
    yield _over_time(
        found, "queue", "Queue", "Pods that wait.", "pods", lambda sample: float(sample.waiting), form=",.0f"
    )
    yield _use(found)
    if not any(each.evictions for each in found):
        yield _section("Evictions", "<p>No pod was evicted.</p>")
        return
    yield _over_time(
        found,
        "evictions",
        "Evictions",
        "Pods that were preempted so far. Their jobs have started anew.",
        "pods",
        lambda sample: float(sample.evictions),
        form=",.0f",
    )


def _summary(found: Sequence[Figures]) -> list[tuple[str, ...]]:
    def row(name: str, of: Callable[[Figures], str]) -> tuple[str, ...]:
        return (name, *map(of, found))

    return [
        row("Pods finished", lambda each: f"{each.finished:,}"),
        row("Pods running at the end", lambda each: f"{each.running:,}"),
        row("Pods waiting at the end", lambda each: f"{each.waiting:,}"),
        row("Waiting time, mean", lambda each: duration(each.waits.mean)),
        row("Waiting time, median", lambda each: duration(each.waits.median)),
        row("Waiting time, 95 of 100 at most", lambda each: duration(each.waits.p95)),
        row("Waiting time, longest", lambda each: duration(each.waits.longest)),
        row("GPUs allocated, mean", lambda each: f"{each.use.gpus:.1%}"),
        row("GPUs allocated, most", lambda each: f"{each.highest_allocation:.1%}"),
        row("Fragmentation, mean", lambda each: f"{each.fragmentation:.2%}"),
        row("Pods evicted", lambda each: f"{each.evictions:,}"),
        row("GPU hours lost by evictions", lambda each: f"{each.lost_gpu_hours:,.1f}"),
        row("Time of the replay", lambda each: duration(each.seconds)),
        row("Decisions", lambda each: f"{each.decisions:,}"),
    ]


def _over_time(
    found: Sequence[Figures],
    id: str,
    title: str,
    about: str,
    unit: str,
    value: Callable[[ReplaySample], float],
    form: str = ".2f",
) -> str:
    """A chart with a curve for each profile, and a table with some of its points."""
    unit_of_time, size = _time_unit(max((each.seconds for each in found), default=0.0))
    lines = {each.profile: [(s.seconds / size, value(s)) for s in each.samples] for each in found}
    chart = charts.curves(id, title, about, lines, unit_of_time, unit)
    rows = []
    for line in range(_ROWS):
        cells = [f"{value(s):{form}}" for each in found for s in _at(each.samples, line)]
        seconds = max((s.seconds for each in found for s in _at(each.samples, line)), default=0.0)
        if len(cells) == len(found):
            rows.append((f"{seconds / size:.4g}", *cells))
    table = _table(title, (unit_of_time, *(f"{each.profile}, {unit}" for each in found)), rows)
    return _figure(title, about, charts.legend(lines), chart, table)


def _at(samples: Sequence[ReplaySample], line: int) -> list[ReplaySample]:
    """The sample for one line of a table, in a list; empty if there are no samples."""
    return [samples[(len(samples) - 1) * line // (_ROWS - 1)]] if samples else []


def _waits(found: Sequence[Figures]) -> str:
    names = [*(name for name, _ in WAITS), NEVER]
    shares = {name: [_share(each, name) for each in found] for name in names}
    about = "How long pods waited from their arrival to their first start, as parts of all pods."
    highest = max(max(values) for values in shares.values()) if found else 1.0
    chart = charts.bars("waits", "Waiting times", about, shares, "% of all pods", highest)
    rows = [
        (name, *(f"{each.waits.pods.get(name, 0):,} ({_share(each, name):.1f} %)" for each in found)) for name in names
    ]
    table = _table("Waiting times", ("Waited", *(each.profile for each in found)), rows)
    return _figure("Waiting times", about, charts.legend(each.profile for each in found), chart, table)


def _share(found: Figures, name: str) -> float:
    return 100.0 * found.waits.pods.get(name, 0) / max(1, found.pods)


def _use(found: Sequence[Figures]) -> str:
    kinds: Sequence[tuple[str, Callable[[Figures], float]]] = (
        ("GPUs", lambda each: each.use.gpus),
        ("CPU", lambda each: each.use.cpu),
        ("memory", lambda each: each.use.memory),
        ("nodes with a pod", lambda each: each.use.nodes),
    )
    about = (
        "What was in use until the last pod came, on the mean: the same work on fewer nodes leaves more whole nodes."
    )
    groups = {name: [100 * of(each) for each in found] for name, of in kinds}
    chart = charts.bars("utilisation", "Utilisation", about, groups, "% of all", 100.0)
    rows = [(name, *(f"{of(each):.1%}" for each in found)) for name, of in kinds]
    table = _table("Utilisation", ("In use", *(each.profile for each in found)), rows)
    return _figure("Utilisation", about, charts.legend(each.profile for each in found), chart, table)


def _figure(title: str, about: str, legend: str, chart: str, table: str) -> str:
    body = (
        f"<figure>{legend}{chart}<figcaption>{escape(about)}</figcaption></figure>"
        f"<details><summary>{escape(title)} as a table</summary>{table}</details>"
    )
    return _section(title, body)


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>"


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    region = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)} as a table">'
    return f"{region}<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table></div>"


def _time_unit(seconds: float) -> tuple[str, float]:
    for name, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 3 * size:
            return name, size
    return "seconds", 1.0


def duration(seconds: float) -> str:
    """A number of seconds for people, in the unit that fits."""
    name, size = _time_unit(seconds)
    return f"{seconds / size:.1f} {name}" if size > 1 else f"{seconds:.1f} s"
