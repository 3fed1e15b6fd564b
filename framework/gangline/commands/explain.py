"""`gangline explain`: why a pod goes where it goes, or nowhere, per node and plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click
import msgspec
from rich.table import Table

from gangline import config, model
from gangline.cache import Cache
from gangline.commands.output import console, table
from gangline.errors import ConfigError, NotFound
from gangline.explain.case import cluster_runtimes, converted, load_cluster
from gangline.explain.live import load_live
from gangline.explain.report import NodeReport, Report
from gangline.explain.report import explain as explain_pod
from gangline.kube import auth
from gangline.kube.client import HttpClient
from gangline.kube.resources import PODS

_DEFAULT = (
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: %s}]"
)


@click.command()
@click.argument("pod", required=False, metavar="[NAMESPACE/POD]")
@click.option("-f", "--file", type=click.Path(path_type=Path), default=None, help="A case file instead of a cluster.")
@click.option(
    "--config", "files", type=click.Path(), multiple=True, help="KubeSchedulerConfiguration; may be repeated."
)
@click.option("--kubeconfig", type=click.Path(), default=None, help="Default: as kubectl, then in-cluster.")
@click.option("--why-not", metavar="NODE", default=None, help="Everything about one node.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def explain(
    pod: str | None,
    file: Path | None,
    files: Sequence[str],
    kubeconfig: str | None,
    why_not: str | None,
    output: Literal["table", "json"],
) -> None:
    """Judge a pod of the cluster, or the `pod` of a case file, as the scheduler would now; nothing is changed.

    A case file is YAML or JSON with lists of objects (nodes, pods, pvcs, ...) and the pod under `pod`.
    """
    if (pod is None) == (file is None):
        raise click.UsageError("name either a pod or a case file")
    if file is not None:
        case = read_case(file)
        cluster, wanted = load_cluster(case), converted(case["pod"], model.Pod, "pod")
    else:
        cluster, wanted = asyncio.run(_live(str(pod), kubeconfig))
    report = explain_pod(_runtime(cluster, wanted, files), cluster.record(_unbound(wanted)))
    if why_not is not None and report.node(why_not) is None:
        raise click.ClickException(f"there is no node {why_not!r}")
    if output == "json":
        shown: Any = report if why_not is None else report.node(why_not)
        click.echo(msgspec.json.format(msgspec.json.encode(shown, enc_hook=_encode)).decode())
    else:
        _show(report, why_not)


def read_case(file: Path) -> dict[str, Any]:
    """A case file. Raises ConfigError."""
    try:
        case = msgspec.yaml.decode(file.read_bytes())
    except OSError as error:
        raise ConfigError(str(file), "", f"cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(str(file), "", " ".join(str(error).split())) from error
    if not isinstance(case, dict) or "pod" not in case:
        raise ConfigError(str(file), "pod", "is missing: the pod that is to be explained")
    return case


async def _live(pod: str, kubeconfig: str | None) -> tuple[Cache, model.Pod]:
    namespace, _, name = pod.rpartition("/")
    async with HttpClient(auth.load(kubeconfig)) as client:
        try:
            found = await client.get(PODS, name, namespace=namespace or "default")
        except NotFound:
            raise click.ClickException(f"there is no pod {namespace or 'default'}/{name}") from None
        cluster, _ = await load_live(client)
    cluster.remove_pod(found.metadata.uid)  # judged as if it were to be placed now
    return cluster, found


def _unbound(pod: model.Pod) -> model.Pod:
    """The pod as it was before it had a node."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))


def _runtime(cluster: Cache, pod: model.Pod, files: Sequence[str]) -> Any:
    name = pod.spec.scheduler_name
    loaded = config.load_files(files) if files else config.load(_DEFAULT % name, "the default profile")
    runtimes = cluster_runtimes(cluster, loaded)
    if name not in runtimes:
        raise ConfigError(files[0], "profiles", f"none serves the pod's scheduler name {name!r}")
    return runtimes[name]


def _encode(value: Any) -> Any:
    return value.value  # the codes are an enum


def _show(report: Report, why_not: str | None) -> None:
    screen = console()
    nodes = [node for node in report.nodes if why_not in (None, node.name)]
    nodes.sort(key=lambda node: (bool(node.rejections), -(node.total or 0), node.name))
    screen.print(_table(report, nodes))
    screen.print()
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
