"""The figures of a run, from its judgement."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from gangline_chaos.judge.judging import Judge


def lines(judged: Judge) -> Iterator[str]:
    """The lines that show a judgement to a person."""
    yield f"{judged.faults} faults, {judged.revisions} revisions checked, {judged.bound} times a pod was bound"
    yield f"{len(judged.violations)} violations"
    yield from (f"  {violation}" for violation in judged.violations)
    seconds = [recovery.seconds for recovery in judged.recoveries]
    if seconds:
        yield f"recovery, from the end of a fault until all pods that waited are bound or gone: {_spread(seconds)}"
    kinds: defaultdict[str, list[float]] = defaultdict(list)
    for recovery in judged.recoveries:
        kinds[recovery.fault.rpartition("-")[0]].append(recovery.seconds)
    for kind, found in sorted(kinds.items()):
        yield f"  {kind:22} {len(found):4} times: {_spread(found)}"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below this share of the values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _spread(seconds: Sequence[float]) -> str:
    return f"p50 {percentile(seconds, 0.5):.1f} s, p99 {percentile(seconds, 0.99):.1f} s, max {max(seconds):.1f} s"
