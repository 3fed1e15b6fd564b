"""How many GPUs of a cluster can be put to use under different placement policies, on the openb trace.

    python benchmarks/fragmentation.py TRACES_FOLDER [--variant default] [--seeds 42,43,44] [--policies FGD,Balanced]

Pods come one by one until they have asked for 130 % of the cluster's GPUs; one that finds no place is lost, and none
leaves. Each is decided by the framework: cache, compiled profile, filters, scores, reserve. See benchmarks/README.md.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from openb.chart import draw
from openb.policies import POLICIES
from openb.replay import Outcome, replay
from openb.trace import TraceError, arrival, read_nodes, read_pods, typical_pods

DEMANDS = (90, 100, 110, 120)
SIZES = ("CPU", "part", "1", "2", "4", "8")
DEFAULT = ("Random", "FirstFit", "BestFit", "MostAllocated", "GpuPacking", "FGD", "FGD-RandomTies", "Balanced")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--variant", "variants", multiple=True, default=("default",), show_default=True)
@click.option("--seeds", default="42,43,44", show_default=True)
@click.option(
    "--policies",
    default=",".join(DEFAULT),
    show_default=True,
    help=f"Policies to compare, separated by commas: {', '.join(POLICIES)}.",
)
@click.option("--svg", type=click.Path(path_type=Path), help="Folder to write a chart of each variant to.")
def main(folder: Path, variants: Sequence[str], seeds: str, policies: str, svg: Path | None) -> None:
    """Replay and print."""
    names, numbers = policies.split(","), _numbers(seeds)
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise click.UsageError(f"--policies: {unknown[0]} is not one of {', '.join(POLICIES)}")
    try:
        for variant in variants:
            outcomes = _run(folder, variant, numbers, names)
            _show(variant, numbers, outcomes)
            if svg is not None:
                _chart(svg / f"fragmentation-{variant}.svg", variant, outcomes)
    except TraceError as error:
        raise click.ClickException(str(error)) from error


def _run(folder: Path, variant: str, seeds: Sequence[int], names: Sequence[str]) -> dict[str, list[Outcome]]:
    """For each policy an outcome per seed."""
    nodes, pods = read_nodes(folder), read_pods(folder, variant)
    typical = typical_pods(pods)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in names}
    for seed in seeds:
        order = arrival(folder, variant, seed, nodes, pods)
        for name in names:
            outcomes[name].append(replay(nodes, pods, typical, order, POLICIES[name]))
    return outcomes


def _show(variant: str, seeds: Sequence[int], outcomes: Mapping[str, Sequence[Outcome]]) -> None:
    demands = [f"{demand} %" for demand in DEMANDS]
    columns = ["policy", *demands, "end", *(str(seed) for seed in seeds), "idle GPUs", "lost " + "/".join(SIZES)]
    table = Table(*columns, "s", "pods/s", box=None, title=f"{variant}: GPUs allocated, % (mean; at the end per seed)")
    for name, runs in outcomes.items():
        lost = sum((run.lost for run in runs), Counter[str]())
        table.add_row(
            name,
            *(f"{statistics.fmean(run.curve[demand] for run in runs):.2f}" for demand in DEMANDS),
            f"{statistics.fmean(run.allocated for run in runs):.2f}",
            *(f"{run.allocated:.2f}" for run in runs),
            f"{statistics.fmean(run.idle for run in runs):.0f}",
            "/".join(f"{lost[size] / len(runs):.0f}" for size in SIZES),
            f"{statistics.fmean(run.seconds for run in runs):.1f}",
            f"{sum(run.pods for run in runs) / sum(run.seconds for run in runs):,.0f}",
        )
    Console(width=200).print(table)


def _chart(path: Path, variant: str, outcomes: Mapping[str, Sequence[Outcome]]) -> None:
    curves = {}
    for name, runs in outcomes.items():
        shared = sorted(set.intersection(*(set(run.curve) for run in runs)))
        curves[name] = [(x, statistics.fmean(run.curve[x] for run in runs)) for x in shared]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        draw(f"{variant}: % of GPUs allocated by % of GPUs asked for", curves, range(80, 131, 5), range(76, 101, 2))
    )


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise click.UsageError(f'--seeds: "{text}" is not a list of whole numbers') from error


if __name__ == "__main__":
    main()
