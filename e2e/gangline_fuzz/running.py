"""Rounds of random cases: what was tried, what was found, and where the smallest case of each fault is kept."""

from __future__ import annotations

import gc
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings

from gangline_fuzz import inputs
from gangline_fuzz.budget import resident
from gangline_fuzz.inputs import Case, Several
from gangline_fuzz.oracle import Found, Kind
from gangline_fuzz.reducing import reduced
from gangline_fuzz.rooms import cases, play

ROUND = 50
"""Clusters of one seed."""
MIB_EACH, MIB_ONCE = 0.1, 64.0
"""MiB by which memory may grow: with each cluster, and besides."""
TRIES = 150
"""Clusters that are played to make a case smaller."""

Tell = Callable[[str], None]
Decorator = Callable[[Callable[[], None]], Callable[[], None]]


@dataclass(slots=True)
class Tally:
    """What was tried and what was found."""

    clusters: int = 0
    inputs: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    """How often each fault was met."""
    saved: dict[str, Path] = field(default_factory=dict)
    """By fault: its smallest case."""

    def count(self, case: Case) -> None:
        """One cluster was played."""
        self.clusters += 1
        for each in case.inputs:
            for one in each.inputs if isinstance(each, Several) else [each]:
                self.inputs[type(one).__name__.lower()] += 1

    def __str__(self) -> str:
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.inputs.most_common())
        said = f"{self.clusters} clusters, {self.inputs.total()} inputs ({kinds}), {len(self.failures)} faults"
        return "\n".join([said, *(f"  {number} x {fault}" for fault, number in self.failures.most_common())])


class Runner:
    """Plays cases, and keeps those that fail in a folder."""

    def __init__(self, folder: Path, tell: Tell = print, tries: int = TRIES) -> None:
        self.tally = Tally()
        self._folder = folder
        self._tell = tell
        self._tries = tries
        self._first: tuple[int, float] | None = None
        """Clusters, and MiB of memory, after the first cases; by then everything has been loaded."""

    def round(self, number: int, clusters: int = ROUND) -> None:
        """The cases of one seed."""
        self._cases(clusters, settings(derandomize=False), seed(number), f"seed {number}")

    def repeatable(self, clusters: int) -> None:
        """Cases that are the same at each run where hypothesis is told so, as it is in CI."""
        self._cases(clusters, settings(), None, "make test")

    def look_at(self, case: Case, origin: str) -> Found | None:
        """Plays one case; a fault that is new is made smaller and kept."""
        with quiet():
            found = play(case)
            if found is not None and found.kind in (Kind.CPU, Kind.MEMORY):
                found = play(case)  # once may be the machine's doing
        self.tally.count(case)
        if found is None:
            return None
        self.tally.failures[found.signature] += 1
        if found.signature not in self.tally.saved:
            self.tally.saved[found.signature] = self._keep(case, found, origin)
        return found

    def _cases(self, clusters: int, usual: settings, seeded: Decorator | None, origin: str) -> None:
        @settings(
            usual,
            max_examples=clusters,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
        )
        @given(cases())
        def example(case: Case) -> None:
            self.look_at(case, origin)

        (seeded(example) if seeded is not None else example)()
        gc.collect()
        self._judge_growth(resident(), origin)

    def _judge_growth(self, mib: float, origin: str) -> None:
        """What one cluster leaves behind is too little to see; what all of them do is not."""
        if self._first is None:
            self._first = self.tally.clusters, mib
        clusters, before = self.tally.clusters - self._first[0], self._first[1]
        if mib - before > MIB_ONCE + MIB_EACH * clusters:
            self.tally.failures[Kind.GROWTH.value] += 1
            self._tell(f"{Kind.GROWTH.value}; {origin}\n{mib - before:.0f} MiB with {clusters} clusters")

    def _keep(self, case: Case, found: Found, origin: str) -> Path:
        def fails(smaller: Case) -> bool:
            with quiet():
                again = play(smaller)
            return again is not None and again.signature == found.signature

        upto = msgspec.structs.replace(case, inputs=case.inputs[: found.at + 1])
        small = reduced(upto if fails(upto) else case, fails, self._tries)
        note = f"{found.signature}; {origin}\n{found.said}"
        path = self._folder / f"{hashlib.sha256(found.signature.encode()).hexdigest()[:12]}.json"
        inputs.write(msgspec.structs.replace(small, note=note), path)
        self._tell(f"{note}\nreplay: python -m gangline_fuzz replay {path}")
        return path


def run(minutes: float, first: int, folder: Path, tell: Tell = print) -> Tally:
    """Round after round, each with the next seed, until so many minutes have passed."""
    runner = Runner(folder, tell)
    end = time.monotonic() + 60 * minutes
    number = first
    while time.monotonic() < end:
        runner.round(number)
        tell(f"seed {number}: {runner.tally}")
        number += 1
    return runner.tally


@contextmanager
def quiet() -> Iterator[None]:
    """Odd objects are logged; not here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
