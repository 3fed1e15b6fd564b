"""`gangline explain`: why a pod gets its node, or none, for each node and plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gangline import config, model
from gangline.commands import options, profiles
from gangline.commands.answering import Answer, GangReport, Placed, answer
from gangline.commands.output import claim_table, console, table
from gangline.commands.running import find_running, judges
from gangline.errors import ConfigError
from gangline.explain.case import converted, load_cluster, make_claims
from gangline.explain.report import NodeReport, Report
from gangline.explain.report import explain as explain_pod
from gangline.explain.targets import Target, parse
from gangline.kube import auth
from gangline.kube.client import HttpClient
from gangline.overview.claim_use import ClaimUse, claims_of
from gangline.profile.assembly import judging_runtimes
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache

MOST_ROWS = 100
"""Nodes in the table, the best first: more are nothing to read."""


@click.command()
@click.argument("target", required=False, metavar="[POD|NAMESPACE/POD|KIND/NAME]")
@click.option("-n", "--namespace", default=None, help="Namespace of the pod or workload. Default: default.")
@click.option("-f", "--file", type=click.Path(path_type=Path), default=None, help="A case file instead of a cluster.")
@options.CONFIG
@click.option("--profile", default=None, help="Name of an installed profile to judge the pod by.")
@options.SCHEDULER
@options.KUBECONFIG
@click.option("--why-not", metavar="NODE", default=None, help="Show everything about one node.")
@options.OUTPUT
def explain(
    target: str | None,
    namespace: str | None,
    file: Path | None,
    files: Sequence[str],
    profile: str | None,
    scheduler: str | None,
    kubeconfig: str | None,
    why_not: str | None,
    output: Literal["table", "json"],
) -> None:
    """Say why a pod is on its node, or judge a waiting pod as the scheduler would now. Nothing is changed.

    KIND/NAME is a workload, as in job/train or deployment/web. The command uses the profile that serves the pod's
    schedulerName: the profile of the running scheduler or, if the scheduler does not answer, an installed profile.

    A case file is YAML or JSON with lists of objects (nodes, pods, pvcs, ...) and the pod under `pod`.
    """
    if (target is None) == (file is None):
        raise click.UsageError("name either a pod or a case file")
    if file is not None:
        report, claims = _of_case(file, files, profile)
        _check(report, why_not)
        if output == "json":
            click.echo(_json(report if why_not is None else report.node(why_not)))
        else:
            _show_claims(claims, console())
            _show(report, why_not, console())
        return
    found = asyncio.run(_live(parse(str(target), namespace), files, profile, scheduler, kubeconfig))
    _check(found.report, why_not)
    if output == "json":
        if why_not is not None and found.report is not None:
            click.echo(_json(found.report.node(why_not)))
        else:
            click.echo(_json(_plain(found)))
        return
    show(found, why_not, console())


def _check(report: Report | None, why_not: str | None) -> None:
    if why_not is not None and report is not None and report.node(why_not) is None:
        raise click.ClickException(f"there is no node {why_not!r}")


def _of_case(file: Path, files: Sequence[str], profile: str | None) -> tuple[Report, Sequence[ClaimUse]]:
    """A case, judged by the named profile, else by the installed profile that serves the pod, and the pod's claims."""
    case = read_case(file)
    cluster, pod = load_cluster(case), converted(case["pod"], model.Pod, "pod")
    make_claims(cluster, pod)
    configuration = config.load_files(files) if files else profiles.choose((), profile)
    record = cluster.record(_unbound(pod))
    return explain_pod(_serving(cluster, configuration, pod, profile, files), record), claims_of(record, cluster)


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
        case = msgspec.yaml.decode(file.read_bytes())
    except OSError as error:
        raise ConfigError(str(file), "", f"cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        why = f"a case is one document of YAML or JSON: {' '.join(str(error).split())}"
        raise ConfigError(str(file), "", why) from error
    if not isinstance(case, dict) or "pod" not in case:
        raise ConfigError(str(file), "pod", "is missing: the pod that is to be explained")
    return case


async def _live(
    target: Target, files: Sequence[str], profile: str | None, scheduler: str | None, kubeconfig: str | None
) -> Answer:
    credentials = auth.load(kubeconfig)
    async with HttpClient(credentials) as client:
        running = await find_running(client, scheduler, credentials)
        return await answer(client, target, await judges(client, files, profile, running))


def _unbound(pod: model.Pod) -> model.Pod:
    """The pod as it was before it had a node."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))


def _encode(value: Any) -> Any:
    return value.value  # the codes are an enum


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=_encode)).decode()


def _plain(found: Answer) -> dict[str, Any]:
    """The report in its old form, with additional fields."""
    fields = {} if found.report is None else {name: getattr(found.report, name) for name in Report.__slots__}
    more = {"about": found.about, "judgedBy": found.judged_by, "placed": found.placed, "notes": found.notes}
    return {**fields, **more, "gang": found.gang, "claims": found.claims}


# Words


def show(found: Answer, why_not: str | None, screen: Console) -> None:
    """Print an answer."""
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
    _show(found.report, why_not, screen)


def _show_placed(placed: Placed, screen: Console) -> None:
    devices = f", devices {placed.devices}" if placed.devices else ""
    screen.print(f"{placed.pod} is on {placed.node}{devices}")
    decision = placed.decision
    if decision is None:
        screen.print(
            "  why is not known: no running scheduler that could be asked remembers it (--scheduler URL says where)"
        )
        return
    among = f", the best of {decision['feasibleNodes']} nodes" if decision.get("feasibleNodes", 0) > 1 else ""
    only = ", the only node that would do" if decision.get("feasibleNodes") == 1 else ""
    screen.print(f"  decided {decision['time']} by the profile {decision['profile']}{among}{only}")
    if (gang := decision.get("gang")) is not None:
        screen.print(
            f"  as one of {gang['members']} pods of gang {gang['name']}, placed together on {gang['placement']} "
            f"(score {gang['score']:.2f} of 1)"
        )
    if scores := decision.get("scores"):
        each = ", ".join(f"{score['plugin']} {score['score']:g} x{score['weight']}" for score in scores)
        screen.print(f"  its scores then: {each}")


def _show_gang(gang: GangReport, screen: Console) -> None:
    size = f" ({gang.dialect}, {gang.min_member} pods)" if gang.min_member else ""
    screen.print(f"gang {gang.name}{size}: {len(gang.placed)} placed")
    if gang.places:
        screen.print(f"  would be placed on {gang.placement} (score {gang.score:.2f} of 1):")
        for pod, node in sorted(gang.places.items()):
            screen.print(f"    {pod} on {node}")
    if gang.message:
        screen.print(f"  {gang.message}", markup=False)


def _show_claims(claims: Sequence[ClaimUse], screen: Console) -> None:
    if claims:
        screen.print(claim_table(claims))
        screen.print()


def _show(report: Report, why_not: str | None, screen: Console) -> None:
    nodes = [node for node in report.nodes if why_not in (None, node.name)]
    nodes.sort(key=lambda node: (bool(node.rejections), -(node.total or 0), node.name))
    screen.print(_table(report, nodes[:MOST_ROWS]))
    if len(nodes) > MOST_ROWS:
        screen.print(f"and {len(nodes) - MOST_ROWS} more nodes: -o json tells of all, --why-not NODE of one")
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
        why = "; ".join(f"{rejection.plugin}: {', '.join(rejection.reasons)}" for rejection in node.rejections)
        result.add_row(node.name, "-" if node.total is None else str(node.total), *scores, why or "-")
    return result
