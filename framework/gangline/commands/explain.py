"""`gangline explain`: why a pod gets its node, or none, for each node and plugin."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml
from rich.console import Console
from rich.table import Table

from gangline import config, model
from gangline.commands import options, profiles
from gangline.commands.answering import Answer, GangReport, Placed, answer
from gangline.commands.finding import find_running
from gangline.commands.options import Connection, PodChoice
from gangline.commands.output import claim_table, put, table, told
from gangline.commands.reaching import reached
from gangline.commands.remedying import show_remedies
from gangline.commands.running import judges
from gangline.commands.snapshot import recorded
from gangline.commands.watching import once_or_follow
from gangline.config.strict_yaml import FAULTS, StrictLoader, fault_of
from gangline.errors import ConfigError, InvalidObject
from gangline.explain.case import check_names, converted, load_cluster, make_claims
from gangline.explain.report import NodeReport, Report
from gangline.explain.report import explain as explain_pod
from gangline.explain.targets import SelectedPods, Target, is_kind, parse
from gangline.overview.claim_use import ClaimUse, claims_of
from gangline.plurals import known_nodes, many
from gangline.process import interrupting
from gangline.profile.assembly import judging_runtimes
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.remedies import Remedies, find_remedies
from gangline.state.cache import Cache
from gangline.state.selectors import EVERYTHING

MOST_ROWS = 20
"""Nodes in the table, the best first, at most: the verdict and the remedies below have to be in sight."""


def _one(context: click.Context, parameter: click.Parameter, value: Sequence[str]) -> str | None:
    """The one object that is named. Raises UsageError for several, for example for a kind and a name in two words."""
    if len(value) > 1:
        is_pair = len(value) == 2 and is_kind(value[0])
        why = f"join kind and name: {'/'.join(value)}" if is_pair else "name one pod, workload or gang"
        raise click.UsageError(f"unexpected {value[1]!r} after {value[0]!r}: {why}", context)
    return value[0] if value else None


@click.command()
@click.argument("target", nargs=-1, callback=_one, metavar="[POD|NAMESPACE/POD|KIND/NAME]")
@click.option(
    "-f", "--file", type=options.InputFile(path_type=Path), default=None, help="A case file instead of a cluster."
)
@options.CONFIG
@click.option("--profile", default=None, help="Name of an installed profile to judge the pod by.")
@options.SCHEDULER
@options.connection
@options.namespaced
@options.SNAPSHOT
@click.option("--why-not", metavar="NODE", type=options.NODE, default=None, help="Show everything about one node.")
@options.WATCH
@options.output()
def explain(
    target: str | None,
    scope: PodChoice,
    file: Path | None,
    files: Sequence[str],
    profile: str | None,
    scheduler: str | None,
    connection: Connection,
    snapshot: str | None,
    why_not: str | None,
    watches: bool,
    output: str,
) -> None:
    """Say why a pod is on its node, or judge a waiting pod as the scheduler would now. Nothing is changed.

    For a pod or gang that waits, the command lists what would let it start: changes that it has tried, the cheapest
    first.

    KIND/NAME is a workload or a gang, as in job/train, deployment/web or podgroup/train. The command uses the profile
    that serves the pod's schedulerName: the profile of the running scheduler or, if the scheduler does not answer, an
    installed profile.

    A case file is YAML or JSON with lists of objects (nodes, pods, pvcs, ...) and the pod under `pod`.
    """
    if [target is not None, file is not None, scope.labels is not EVERYTHING].count(True) != 1:
        raise click.UsageError("name either a pod or a case file, or select pods with --selector")
    _check_usage(target, scope)
    if target is not None and scope.everywhere:
        raise click.UsageError("a pod cannot be named across all namespaces: use --namespace or NAMESPACE/POD")
    if file is not None:
        if snapshot is not None or watches:
            raise click.UsageError("a case file is no cluster: leave out --snapshot and --watch, or --file")
        click.echo(_told_of_case(file, files, profile, why_not, output), nl=False)
        return
    if snapshot is not None and watches:
        raise click.UsageError("a snapshot does not change: --watch is for a cluster")
    wish = _Wish(target, scope, files, profile, scheduler, why_not, output)
    interrupting.run(_recorded(wish, snapshot) if snapshot is not None else _live(connection, wish, watches))


def _check_usage(target: str | None, scope: PodChoice) -> None:
    try:
        if target is not None:
            parse(target, scope.namespace)
    except ConfigError as error:
        raise click.UsageError(f"{error.path!r}: {error.why}") from error


@dataclass(frozen=True, slots=True)
class _Wish:
    """The options of the command line for a live cluster."""

    target: str | None
    scope: PodChoice
    files: Sequence[str]
    profile: str | None
    scheduler: str | None
    why_not: str | None
    output: str

    def about(self, default: str) -> Target | SelectedPods:
        """The pods to explain; `default` is the namespace of the context. Raises ConfigError."""
        if self.target is not None:
            return parse(self.target, self.scope.namespace, default)
        return SelectedPods(self.scope.within(default), self.scope.labels)


async def _live(connection: Connection, wish: _Wish, watches: bool) -> None:
    async with reached(connection) as there:
        about = wish.about(there.credentials.namespace)

        async def look() -> str:
            async with find_running(there, wish.scheduler) as asked:
                by = judges(wish.files, wish.profile, asked.running, asked.is_absent)
                found = await answer(there.client, about, by, where=there.where, unasked=asked.refusal)
            _check(found.report, wish.why_not, there.where)
            return _told(found, wish)

        await once_or_follow(there.client, look, watches, wish.output)


def _told_of_case(file: Path, files: Sequence[str], profile: str | None, why_not: str | None, output: str) -> str:
    report, claims, remedies = _of_case(file, files, profile)
    _check(report, why_not, str(file))
    value: Any = {**_fields(report), "remedies": remedies} if why_not is None else report.node(why_not)

    def show_case(screen: Console) -> None:
        _show_claims(claims, screen)
        _show(report, why_not, screen, output == "wide")
        if report.nodes:
            show_remedies(remedies, why_not, screen)

    return told(value, output, _nodes(report), show_case)


async def _recorded(wish: _Wish, file: str) -> None:
    client, by, clock = await recorded(Path(file), wish.files, wish.profile)
    found = await answer(client, wish.about(""), by, clock, file)
    _check(found.report, wish.why_not, file)
    click.echo(_told(found, wish), nl=False)


def _told(found: Answer, wish: _Wish) -> str:
    value: Any = _plain(found)
    if wish.why_not is not None and found.report is not None:
        value = found.report.node(wish.why_not)
    is_wide = wish.output == "wide"
    names = _nodes(found.report) if not found.placed else [f"node/{each.node}" for each in found.placed]
    return told(value, wish.output, names, lambda screen: show(found, wish.why_not, screen, is_wide))


def _nodes(report: Report | None) -> list[str]:
    """The feasible nodes as node/NAME, the best first."""
    if report is None:
        return []
    nodes = sorted((each for each in report.nodes if not each.rejections), key=_rank)
    return [f"node/{each.name}" for each in nodes]


def _rank(node: NodeReport) -> tuple[bool, float, str]:
    """The sort key that puts the best node first."""
    return bool(node.rejections), -(node.total or 0), node.name


def _check(report: Report | None, why_not: str | None, where: str) -> None:
    if why_not is not None and report is not None and report.node(why_not) is None:
        names = [each.name for each in report.nodes]
        raise ConfigError(where, "", f"there is no node {why_not!r}; {known_nodes(names)}")


def _of_case(file: Path, files: Sequence[str], profile: str | None) -> tuple[Report, Sequence[ClaimUse], Remedies]:
    """A case, judged by the named profile, else by the installed profile that serves the pod: the verdicts, the pod's
    claims, and what would let the pod start.
    """
    case = read_case(file)
    configuration = config.load_files(files) if files else profiles.choose((), profile)
    try:
        check_names(case)
        cluster, pod = load_cluster(case), converted(case["pod"], model.Pod, "pod")
        make_claims(cluster, pod)
        record = cluster.record(_unbound(pod))
    except InvalidObject as error:
        raise ConfigError(str(file), "", str(error)) from error
    runtime = _serving(cluster, configuration, pod, profile, files)
    remedies = find_remedies(Unit([record], added=0.0), runtime, cluster, {}, 0.0)
    return explain_pod(runtime, record), claims_of(record, cluster), remedies


def _serving(
    cluster: Cache,
    configuration: config.SchedulerConfiguration,
    pod: model.Pod,
    profile: str | None,
    files: Sequence[str],
) -> Runtime:
    runtimes, name = judging_runtimes(configuration, cluster), pod.spec.scheduler_name
    if profile is not None and len(runtimes) == 1:
        return next(iter(runtimes.values()))
    if name not in runtimes:
        where = files[0] if files else "the installed profiles"
        why = f"none serves the pod's scheduler name {name!r}; there are {', '.join(runtimes)}"
        raise ConfigError(where, "profiles", why)
    return runtimes[name]


def read_case(file: Path) -> dict[str, Any]:
    """A case file. Raises ConfigError."""
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise ConfigError(str(file), "", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(file), "", f"not UTF-8 at byte {error.start}") from error
    try:
        case = yaml.load(text, StrictLoader)
    except FAULTS as error:
        where, why = fault_of(error, text)
        raise ConfigError(str(file), where, f"a case is one document of YAML or JSON: {why}") from error
    if not isinstance(case, dict) or "pod" not in case:
        raise ConfigError(str(file), "pod", "is missing: the pod that is to be explained")
    return case


def _unbound(pod: model.Pod) -> model.Pod:
    """The pod as it was before it had a node."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))


def _plain(found: Answer) -> dict[str, Any]:
    """The answer as plain data: at the top the fields of the report, as in earlier versions, then the others."""
    fields = {} if found.report is None else _fields(found.report)
    more = {"about": found.about, "judgedBy": found.judged_by, "placed": found.placed, "notes": found.notes}
    return {**fields, **more, "gang": found.gang, "claims": found.claims, "remedies": found.remedies}


def _fields(report: Report) -> dict[str, Any]:
    return {name: getattr(report, name) for name in Report.__slots__}


# Output for people


def show(found: Answer, why_not: str | None, screen: Console, is_wide: bool = False) -> None:
    """Print an answer; with `is_wide`, all nodes."""
    for note in found.notes:
        screen.print(f"note: {note}", markup=False)
    for placed in found.placed:
        _show_placed(placed, screen)
    if found.gang is not None:
        _show_gang(found.gang, screen)
    _show_claims(found.claims, screen)
    if found.report is None:
        return
    if found.placed or found.gang is not None or found.notes:
        screen.print()
    on_its_own = " on its own" if found.gang is not None else ""
    now = ", if it were to be placed now" if found.placed and found.gang is None else ""
    screen.print(f"{found.report.pod}{on_its_own}{now}, by the profile {found.report.profile} of {found.judged_by}:")
    _show(found.report, why_not, screen, is_wide)
    if found.report.nodes:
        show_remedies(found.remedies, why_not, screen)


def _show_placed(placed: Placed, screen: Console) -> None:
    devices = f", devices {placed.devices}" if placed.devices else ""
    screen.print(f"{placed.pod} is on {placed.node}{devices}")
    decision = placed.decision
    if decision is None:
        forgotten = "no replica of the scheduler remembers the decision; each remembers the last that it made itself"
        unasked = "no running scheduler could be asked (--scheduler URL says where)"
        screen.print(f"  why is not known: {forgotten if placed.was_asked else unasked}")
        return
    among = f", the best of {decision['feasibleNodes']} nodes" if decision.get("feasibleNodes", 0) > 1 else ""
    only = ", the only node that would do" if decision.get("feasibleNodes") == 1 else ""
    screen.print(f"  decided {decision['time']} by the profile {decision['profile']}{among}{only}")
    if (gang := decision.get("gang")) is not None:
        screen.print(
            f"  as one of {many(gang['members'], 'pod')} of gang {gang['name']}, placed together on "
            f"{gang['placement']} (score {gang['score']:.2f} of 1)"
        )
    if scores := decision.get("scores"):
        each = ", ".join(f"{score['plugin']} {score['score']:g} x{score['weight']}" for score in scores)
        screen.print(f"  its scores then: {each}")


def _show_gang(gang: GangReport, screen: Console) -> None:
    size = f" ({gang.dialect}, {many(gang.min_member, 'pod')})" if gang.min_member else ""
    screen.print(f"gang {gang.name}{size}: {len(gang.placed)} placed")
    if gang.places:
        screen.print(f"  would be placed on {gang.placement} (score {gang.score:.2f} of 1):")
        for pod, node in sorted(gang.places.items()):
            screen.print(f"    {pod} on {node}")
    if gang.message:
        screen.print(f"  {gang.message}", markup=False)


def _show_claims(claims: Sequence[ClaimUse], screen: Console) -> None:
    if claims:
        put(screen, claim_table(claims))
        screen.print()


def _show(report: Report, why_not: str | None, screen: Console, is_wide: bool) -> None:
    if not report.nodes:
        screen.print(f"{report.pod} has no node to go to: there are no nodes.")
        return
    most = sys.maxsize if is_wide else MOST_ROWS
    nodes = [node for node in report.nodes if why_not in (None, node.name)]
    nodes.sort(key=_rank)
    put(screen, _table(report, nodes[:most]), lambda: _narrow_table(report, nodes[:most]))
    if len(nodes) > most:
        screen.print(f"and {many(len(nodes) - most, 'more node')}: -o wide tells of all, --why-not NODE of one")
    screen.print()
    if report.held:
        screen.print(f"{report.pod} is not tried: {report.held}", markup=False)
        screen.print("If it were:")
    if report.message:
        screen.print(report.message)
    elif why_not is None:
        best = report.best
        among = "" if len(best) == 1 else f" (one of {len(best)} equal ones, taken at random)"
        screen.print(f"{report.pod} would go to {', '.join(best[:5])}{among}")


def _table(report: Report, nodes: Sequence[NodeReport]) -> Table:
    columns = [f"{plugin} x{weight}" for plugin, weight in report.weights.items()]
    result = table("NODE", "TOTAL", *columns, "REJECTED BY")
    for node in nodes:
        scores = [str(node.scores[plugin]) if plugin in node.scores else "-" for plugin in report.weights]
        result.add_row(node.name, _total(node), *scores, _why(node) or "-")
    return result


def _narrow_table(report: Report, nodes: Sequence[NodeReport]) -> Table:
    """The same for a narrow terminal: the scores of a node in one cell, which is folded."""
    result = table("NODE", "TOTAL", "SCORES, OR REJECTED BY")
    for node in nodes:
        scores = ", ".join(
            f"{plugin} {node.scores[plugin]} x{weight}"
            for plugin, weight in report.weights.items()
            if plugin in node.scores
        )
        result.add_row(node.name, _total(node), _why(node) or scores or "-")
    return result


def _total(node: NodeReport) -> str:
    return "-" if node.total is None else str(node.total)


def _why(node: NodeReport) -> str:
    return "; ".join(f"{rejection.plugin}: {', '.join(rejection.reasons)}" for rejection in node.rejections)
