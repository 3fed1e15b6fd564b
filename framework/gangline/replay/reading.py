"""Reads traces: the openb trace of Alibaba, the jobs of Microsoft's Philly cluster, and a format of our own.

The names of the columns tell the format of a file. Several files make one trace, for example a list of pods and a list
of nodes.
docs/operating/replay.md describes the formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from gangline.errors import TraceError
from gangline.replay.lines import Line, header_of, in_csv, in_json
from gangline.replay.trace import WHOLE, Trace, TraceJob, TraceNode

MOST_PODS = 2_000_000
"""Pods of a trace, at most."""
MOST_NODES = 20_000
MOST_MEMBERS = 4096
"""Pods of a job, at most."""
MOST_GPUS = 64
"""GPUs of a pod or a node, at most."""
_MOST_MILLI_CPU = 10**9
_MOST_MEMORY = 10**9
"""MiB of memory of a pod or a node, at most."""
_MOST_PRIORITY = 10**9
_OF_A_NODE = 8
"""GPUs that a pod of a Philly job has at most, because its servers have no more."""
_MIB = 1 << 20
_COUNTED = re.compile(r"([1-9]\d{0,4})x([1-9]\d?)")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

OWN = ("arrival", "duration", "pods", "gpus", "fraction", "cpu", "memory", "priority", "models")
"""The columns of our own format."""
PODS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_MORE_OF_PODS = ("gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")
NODES = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
PHILLY = ("gpus", "submit_s", "duration_s")
_MORE_OF_PHILLY = ("vc", "job", "job_type")


def read(paths: Iterable[Path]) -> Trace:
    """The jobs and nodes in these files. The jobs are in the order of their arrivals, and the first arrives at 0.

    Raises TraceError, also if the files have no job.
    """
    jobs: list[TraceJob] = []
    nodes: dict[str, TraceNode] = {}
    pods, last = 0, ""
    for path in paths:
        last = str(path)
        for line, found in _rows(path):
            if isinstance(found, TraceNode):
                if found.name in nodes:
                    raise line.error(NODES[0], f"the node {found.name} was named before")
                if len(nodes) == MOST_NODES:
                    raise line.error(NODES[0], f"there are more than {MOST_NODES} nodes")
                nodes[found.name] = found
                continue
            pods += found.pods
            if pods > MOST_PODS:
                raise TraceError(line.file, line.number, "", f"there are more than {MOST_PODS} pods")
            jobs.append(found)
    if not jobs:
        raise TraceError(last, 0, "", "there are no pods in the trace")
    first = min(job.arrival for job in jobs)
    jobs = [replace(job, arrival=job.arrival - first) for job in jobs] if first else jobs
    return Trace(sorted(jobs, key=lambda job: job.arrival), list(nodes.values()))


def _rows(path: Path) -> Iterator[tuple[Line, TraceJob | TraceNode]]:
    if path.exists() and not path.is_file():  # a pipe, for example, can be read only once
        raise TraceError(str(path), 0, "", "not a regular file: write the trace to a file first")
    first = header_of(path)
    if not first:
        raise TraceError(str(path), 0, "", "the file is empty")
    if first.startswith("{"):
        for line in in_json(path):
            _check_names(line, line.cells, OWN, ("arrival",))
            yield line, own(line)
        return
    lines = in_csv(path)
    reader = _reader(next(lines))
    for line in lines:
        yield line, reader(line)


def _reader(header: Line) -> Callable[[Line], TraceJob | TraceNode]:
    """The reader for a file, by the names of its columns."""
    names = set(header.columns)
    for least, more, reader in (
        (NODES, (), node),
        (PODS, _MORE_OF_PODS, _PodReader()),
        (PHILLY, _MORE_OF_PHILLY, philly),
        (OWN[:1], OWN[1:], own),
    ):
        if names >= set(least):
            _check_names(header, header.columns, (*least, *more), least)
            return reader
    why = "no trace that is known has these columns; one of our own has " + ", ".join(OWN)
    raise TraceError(header.file, header.number, "column 1", why)


def _check_names(line: Line, names: Iterable[str], known: Iterable[str], needed: Iterable[str]) -> None:
    known, there = tuple(known), set(names)
    for name in line.columns or names:
        if name not in known:
            raise line.error(name, f"not known here; there are {', '.join(known)}")
    for name in needed:
        if name not in there:
            raise line.error(name, "is missing")


def own(line: Line) -> TraceJob:
    """A line of our own format."""
    gpus = line.whole("gpus", MOST_GPUS, 0)
    fraction = line.thousandths("fraction") if line.optional("fraction") else WHOLE
    if not 0 < fraction <= WHOLE:
        raise line.error("fraction", f"{line.optional('fraction')}: not more than 0 and at most 1")
    return TraceJob(
        line.seconds("arrival"),
        line.seconds("duration") if line.optional("duration") else None,
        line.whole("pods", MOST_MEMBERS, 1, least=1),
        gpus,
        fraction if gpus else 0,
        _at_most(line, "cpu", line.thousandths("cpu"), _MOST_MILLI_CPU),
        _at_most(line, "memory", -(-line.thousandths("memory") // (1000 * _MIB)), _MOST_MEMORY),
        line.whole("priority", _MOST_PRIORITY, 0, least=-_MOST_PRIORITY),
        _models(line.optional("models")),
    )


class _PodReader:
    """Reads the pods of openb. Without times, as in one of its variants, a pod comes each second and none leaves."""

    def __init__(self) -> None:
        self._number = 0

    def __call__(self, line: Line) -> TraceJob:
        pod = openb_pod(line)
        self._number += 1
        if not line.optional("creation_time"):
            return replace(pod, arrival=float(self._number), duration=None)
        begins, ends = line.seconds("creation_time"), None
        if line.optional("deletion_time"):
            runs = line.seconds("scheduled_time") if line.optional("scheduled_time") else begins
            ends = line.seconds("deletion_time")
            if ends < runs:
                raise line.error("deletion_time", "is before the pod was scheduled")
            return replace(pod, arrival=begins, duration=ends - runs)
        return replace(pod, arrival=begins, duration=None)


def openb_pod(line: Line) -> TraceJob:
    """A pod of openb, without its times."""
    gpus = line.whole("num_gpu", MOST_GPUS)
    milli = line.whole("gpu_milli", WHOLE) if gpus else 0
    if gpus and not milli:
        raise line.error("gpu_milli", "is 0 for a pod with GPUs")
    return TraceJob(
        0.0,
        None,
        1,
        gpus,
        milli,
        line.whole("cpu_milli", _MOST_MILLI_CPU),
        line.whole("memory_mib", _MOST_MEMORY),
        0,
        _models(line.optional("gpu_spec")) if gpus else (),
    )


def node(line: Line) -> TraceNode:
    """A node of openb."""
    name = line.text("sn")
    if not _NAME.fullmatch(name):
        raise line.error("sn", "not the name of a node")
    cpu, memory = line.whole("cpu_milli", _MOST_MILLI_CPU), line.whole("memory_mib", _MOST_MEMORY)
    return TraceNode(name, cpu, memory, line.whole("gpu", MOST_GPUS), line.optional("model"))


def philly(line: Line) -> TraceJob:
    """A job of Philly. A job with more GPUs than a server has becomes a gang of as few equal pods as possible."""
    gpus = line.whole("gpus", MOST_MEMBERS, least=1)
    pods = next(count for count in range(-(-gpus // _OF_A_NODE), gpus + 1) if gpus % count == 0)
    return TraceJob(line.seconds("submit_s"), line.seconds("duration_s"), pods, gpus // pods, WHOLE)


def counted(text: str) -> list[TraceNode] | None:
    """Equal nodes from NODESxGPUS, with more CPU and memory than any pod asks for; None for a text of another form."""
    found = _COUNTED.fullmatch(text)
    if found is None or int(found[1]) > MOST_NODES or int(found[2]) > MOST_GPUS:
        return None
    gpus = int(found[2])
    return [TraceNode(f"node-{number:05d}", gpus * 16_000, gpus * 128 * 1024, gpus) for number in range(int(found[1]))]


def faster(trace: Trace, factor: float) -> Trace:
    """The trace with its arrivals so many times closer together."""
    return Trace([replace(job, arrival=job.arrival / factor) for job in trace.jobs], trace.nodes)


def _models(text: str) -> tuple[str, ...]:
    return tuple(sorted({part.strip() for part in text.split("|")} - {""}))


def _at_most(line: Line, column: str, amount: int, most: int) -> int:
    if amount > most:
        raise line.error(column, f"{line.optional(column)}: too much")
    return amount
