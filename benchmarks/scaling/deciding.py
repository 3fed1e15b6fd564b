"""Decisions without an API server, in milliseconds of CPU time: on pods while nodes change, and on a gang."""

from __future__ import annotations

import gc
import random
import statistics
import time

from cycle import DEFAULT, pod
from gangline import config
from gangline.deciding.scheduling import Decision, decide
from gangline.kube.decoding import decode_object
from gangline.kube.resources import NODES
from gangline.process.memory import settle_memory
from gangline.profile.assembly import judging_runtimes
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangs import Bench, wishes
from scaling import objects

Rows = list[tuple[str, str]]
SHARE, KNOWN, NEW = 0.1, 100, 5
"""As in `scale.py`: the share of the nodes that change each minute, and pods each second, of known and of new classes.
"""
SECONDS = 12
"""Seconds that are played; they pass at once."""
SPREAD = 7919
"""The next node to change is so many further."""
GANG_NODES, MEMBERS, OCCUPIED, RUNS = (5_000, 20_000), 1_000, 0.3, 9


def decisions(nodes: int) -> Rows:
    """Pods of known and of new classes, on so many nodes of which some have changed between two decisions."""
    cache = Cache()
    for number in range(nodes):
        cache.upsert_node(decode_object(NODES, objects.node(number)))
    runtime = judging_runtimes(config.load(DEFAULT, "default"), cache, ties=random.Random(1))["default-scheduler"]
    settle_memory()
    times: dict[str, list[float]] = {"known": [], "new": []}
    per_second, changed = KNOWN + NEW, 0
    for step in range(per_second * SECONDS):
        for _ in range(int((step + 1) * nodes * SHARE / 60 / per_second) - changed):
            cache.upsert_node(decode_object(NODES, objects.node(changed * SPREAD % nodes, beat=changed + 1)))
            changed += 1
        kind = "known" if step % (per_second // NEW) else "new"
        record = cache.record(pod(step, 500 if kind == "known" else 1_000 + step))
        began = time.process_time()
        outcome = decide(Unit([record], added=0.0), runtime, cache, {})
        times[kind].append((time.process_time() - began) * 1e3)
        assert isinstance(outcome, Decision)
    return [(f"{changed} nodes change, pods of a {kind} class: p50, p99", _spelt(times[kind])) for kind in times]


def gangs() -> Rows:
    """A gang that needs a zone, by the GPU profile, on nodes that report their GPUs."""
    rows: Rows = []
    required = next(wishes(MEMBERS))
    for nodes in GANG_NODES:
        bench = Bench("gpu-scheduler", nodes, OCCUPIED, reports=True)
        times = sorted(bench.measure(MEMBERS, required).cpu * 1e3 for _ in range(RUNS))
        what = f"a gang of {MEMBERS:,} with a required level on {nodes:,} nodes with a GpuNodeStatus: least, p50"
        rows.append((what, f"{times[0]:.1f} ms, {statistics.median(times):.1f} ms"))
        del bench
        gc.collect()
    return rows


def _spelt(times: list[float]) -> str:
    ordered = sorted(times)
    return ", ".join(f"{ordered[int(len(ordered) * share)]:.2f} ms" for share in (0.5, 0.99))
