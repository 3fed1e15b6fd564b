"""kube-scheduler and Gangline on the same control plane, with the same nodes and pods, one after the other.

    python benchmarks/vs_kube_scheduler.py [--workload pods ...] [--nodes 5000] [--pods 5000] [--runs 5] [--json FILE]

Needs the control plane (`make control-plane`). The schedulers take turns (A B A B), each run on a fresh control plane.
Both write events; kube-scheduler runs with QPS and burst 5000. CPU is of the scheduler process alone; RSS is its peak.
Both show a ServiceAccount's token, as in a pod. Nodes are objects and nothing more, so that no kubelet takes part. The
modules of vs_kube/ say what each workload is. While a scheduler is measured, the CPU time of all other processes of the
machine is, too: if they used more than a tenth of a core, the machine was not quiet, and the benchmark says so.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console

import credentials
from gangline_e2e import api
from gangline_e2e.harness import ControlPlane
from vs_kube import alone, chart, coming_and_going, figures, gangs, quiet, schedulers, telling
from vs_kube.figures import KUBE, OURS, Run
from vs_kube.setting import Setting, TooFewGpus, Workload

WORKLOADS = {each.name: each for each in (*alone.WORKLOADS, *coming_and_going.WORKLOADS, *gangs.WORKLOADS)}
"""By name, in the order of the documentation."""


async def one_run(workload: Workload, scheduler: str, sizes: Mapping[str, float], folder: Path) -> Run:
    """One scheduler once, on a fresh control plane."""
    nodes, pods = int(sizes["nodes"]), int(sizes["pods"])
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(folder / "plane", workload.options))
        async with api.connect(plane.kubeconfig) as cluster:
            config = await credentials.service_account(cluster, plane.kubeconfig)
            if scheduler == KUBE:
                name, start = "kube", schedulers.kube_scheduler(plane, config, workload.kube_args)
            else:
                started = schedulers.gangline(config, folder, workload.profile)
                name, start = workload.serves, stack.enter_context(started)
            setting = Setting(cluster, plane, name, start, nodes, pods, sizes["rate"], sizes["seconds"])
            await workload.prepare(setting)
            before = quiet.snapshot()
            values = await workload.measure(setting)
            return Run(scheduler, values, quiet.others(before, quiet.snapshot()))


def compare(workload: Workload, runs: int, sizes: Mapping[str, float]) -> telling.Outcome:
    """Both schedulers on a workload, in turns."""
    done: list[Run] = []
    for number in range(runs):
        for scheduler in (KUBE, OURS):
            with tempfile.TemporaryDirectory() as folder:
                done.append(asyncio.run(one_run(workload, scheduler, sizes, Path(folder))))
            print(f"{workload.name}, run {number + 1}: {done[-1]}", file=sys.stderr)
    return telling.Outcome(
        workload.name, workload.says, workload.metrics, int(sizes["nodes"]), int(sizes["pods"]), tuple(done)
    )


def tell(outcomes: Sequence[telling.Outcome], json_file: Path | None, svg_file: Path | None) -> None:
    """Print the last outcome, and write all of them."""
    console = Console(width=120)
    console.print(outcomes[-1].title())
    console.print(telling.table(outcomes[-1]))
    console.print(figures.verdict(outcomes[-1].runs))
    console.print(f"Gangline ran with Python {telling.python()}.\n")
    if json_file is not None:
        json_file.write_text(json.dumps(telling.as_json(outcomes), indent=1) + "\n")
    if svg_file is not None:
        svg_file.write_text(chart.draw(outcomes))


@click.command()
@click.option(
    "--workload",
    "names",
    type=click.Choice([*WORKLOADS]),
    multiple=True,
    help="A workload to run; may be repeated. Default: pods.",
)
@click.option("--nodes", type=click.IntRange(min=1), help="Number of nodes. Default: 5000; 1000 in fill.")
@click.option(
    "--pods", type=click.IntRange(min=1), help="Number of pods. Default: 5000; 512 in gang. Not for fill and churn."
)
@click.option("--rate", default=300.0, show_default=True, help="Pods per second in churn.")
@click.option("--seconds", default=30.0, show_default=True, help="Seconds for which pods come in churn.")
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="Runs of each scheduler.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="File to which to write all figures.")
@click.option("--svg", "svg_file", type=click.Path(path_type=Path), help="File to which to draw the outcomes.")
def main(
    names: Sequence[str],
    nodes: int | None,
    pods: int | None,
    rate: float,
    seconds: float,
    runs: int,
    json_file: Path | None,
    svg_file: Path | None,
) -> None:
    """Measure and print."""
    outcomes: list[telling.Outcome] = []
    chosen = [WORKLOADS[name] for name in names or ("pods",)]
    if pods is not None and any(not workload.takes_pods for workload in chosen):
        raise click.UsageError("--pods is not for the workloads fill and churn.")
    for workload in chosen:
        many = nodes or workload.nodes
        sizes = {"nodes": many, "pods": pods or workload.pods(many), "rate": rate, "seconds": seconds}
        try:
            outcomes.append(compare(workload, runs, sizes))
        except TooFewGpus as error:
            raise click.UsageError(str(error)) from None
        tell(outcomes, json_file, svg_file)


if __name__ == "__main__":
    main()
