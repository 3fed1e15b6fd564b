"""Reads the openb trace: nodes, pods, and in which order they come.

Where to get it: data/csv of https://github.com/hkust-adsl/kubernetes-scheduler-simulator, or cluster-trace-gpu-v2023 of
https://github.com/alibaba/clusterdata. Weng et al., "Beware of Fragmentation", USENIX ATC'23.
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.replay.trace import TraceJob, TraceNode
from gangline_plugins.anti_fragmentation.arguments import TypicalPod
from gangline_plugins.anti_fragmentation.typical import COVERAGE
from gangline_plugins.gpu.node_devices import WHOLE

NODES = "openb_node_list_gpu_node.csv"
DEMAND = 1.3
"""Pods come until they have asked for this multiple of the cluster's GPUs."""
_SOURCE = "https://github.com/hkust-adsl/kubernetes-scheduler-simulator, folder data/csv"


class TraceError(Exception):
    """A trace cannot be used; the message says where and why."""


class TracePod(TraceJob):
    """A pod, as a job of one pod without times."""

    __slots__ = ()

    @property
    def size(self) -> str:
        """What it counts as."""
        return "CPU" if not self.gpus else "part" if self.is_part else str(self.gpus)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One run: pods in the order in which they come, nodes in the order in which ties are broken."""

    seed: int
    pods: Sequence[int]
    """The pods in order of arrival, as indexes of the list of pods."""
    nodes: Sequence[int]
    """The nodes in the order of ties, as indexes of the list of nodes."""
    is_recorded: bool
    """Whether the arrival was read from a file, and not made from the seed."""


def read_nodes(folder: Path) -> list[TraceNode]:
    """The cluster. Raises TraceError."""
    return [
        TraceNode(
            row.text("sn"), row.number("cpu_milli"), row.number("memory_mib"), row.number("gpu"), row.text("model")
        )
        for row in _rows(folder, NODES)
    ]


def read_pods(folder: Path, variant: str) -> list[TracePod]:
    """The pods of a variant. Raises TraceError."""
    return [_pod(row) for row in _rows(folder, f"openb_pod_list_{variant}.csv")]


def arrival(folder: Path, variant: str, seed: int, nodes: Sequence[TraceNode], pods: Sequence[TracePod]) -> Arrival:
    """The recorded order from orders/orders_VARIANT.csv, or where there is none one made from the seed."""
    path = folder / "orders" / f"orders_{variant}.csv"
    found: dict[str, list[int]] = {}
    if path.exists():
        csv.field_size_limit(1 << 24)
        with path.open(newline="") as file:
            for line, row in enumerate(csv.reader(file), start=1):
                if row and row[0] == str(seed):
                    limit = len(pods) if row[1] == "pods" else len(nodes)
                    found[row[1]] = [_index(text, limit, path, line) for text in row[2].split()]
    if {"pods", "noderank"} <= found.keys():
        ranks = found["noderank"]
        return Arrival(seed, found["pods"], sorted(range(len(nodes)), key=lambda row: ranks[row]), is_recorded=True)
    return _made_up(seed, nodes, pods)


def typical_pods(pods: Sequence[TracePod]) -> list[TypicalPod]:
    """The kinds that cover 95 % of the pods, as the authors count and order them."""
    counts = Counter((pod.cpu, pod.milli, pod.gpus, "|".join(pod.models)) for pod in pods)
    found: list[tuple[tuple[int, int, int, str], int]] = []
    covered = 0
    for kind, count in sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True):
        if covered >= COVERAGE * len(pods):
            break
        found.append((kind, count))
        covered += count
    return [
        TypicalPod(
            popularity=(count / len(pods)) / (covered / len(pods)),
            cpu=f"{cpu}m",
            gpus=gpus,
            fraction=milli / WHOLE if gpus else 1.0,
            models=models.split("|") if models else [],
        )
        for (cpu, milli, gpus, models), count in found
    ]


def _made_up(seed: int, nodes: Sequence[TraceNode], pods: Sequence[TracePod]) -> Arrival:
    """All pods shuffled, then some again at random until demand is met; thinned out at random where it is more."""
    chance = random.Random(seed)
    limit = DEMAND * WHOLE * sum(node.gpus for node in nodes)
    order = chance.sample(range(len(pods)), len(pods))
    total = sum(pod.demand for pod in pods)
    while total > limit:
        total -= pods[order.pop()].demand
    while total < limit:
        row = chance.randrange(len(pods))
        total += pods[row].demand
        order.append(row)
    if total > limit:
        order.pop()
    return Arrival(seed, order, chance.sample(range(len(nodes)), len(nodes)), is_recorded=False)


def _pod(row: _Row) -> TracePod:
    gpus, spec = row.number("num_gpu"), row.optional("gpu_spec")
    milli = row.number("gpu_milli", WHOLE) if gpus else 0
    if gpus and not milli:
        raise row.error("gpu_milli", "is 0 for a pod with GPUs")
    models = tuple(filter(None, spec.split("|"))) if gpus else ()
    cpu, memory = row.number("cpu_milli"), row.number("memory_mib")
    return TracePod(0.0, None, gpus=gpus, milli=milli, cpu=cpu, memory=memory, models=models)


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of a CSV file."""

    path: Path
    line: int
    cells: dict[str, str | None]

    def error(self, column: str, why: str) -> TraceError:
        return TraceError(f"{self.path}:{self.line}: column {column}: {why}")

    def text(self, column: str) -> str:
        found = self.cells.get(column)
        if not found:
            raise self.error(column, "is missing")
        return found

    def optional(self, column: str) -> str:
        return self.cells.get(column) or ""

    def number(self, column: str, most: int | None = None) -> int:
        text = self.text(column)
        if not (text.isascii() and text.isdigit()):
            raise self.error(column, f'"{text}" is not a whole number')
        if most is not None and int(text) > most:
            raise self.error(column, f"{text} is more than {most}")
        return int(text)


def _rows(folder: Path, name: str) -> Iterator[_Row]:
    path = folder / name
    if not path.is_file():
        raise TraceError(f"{path}: not there; download the trace from {_SOURCE}")
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        for cells in reader:
            if None in cells:
                raise TraceError(
                    f"{path}:{reader.line_num}: column {len(reader.fieldnames or ()) + 1}: is one too many"
                )
            yield _Row(path, reader.line_num, cells)


def _index(text: str, limit: int, path: Path, line: int) -> int:
    if not text.isdigit() or int(text) >= limit:
        raise TraceError(f'{path}:{line}: column 3: "{text}" is not a row of the list, 0 to {limit - 1}')
    return int(text)
