"""Whatever people, faults and reloads do: what the scheduler has suspended runs in the end, and what others have
stopped does not.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline import Conflict, TooManyRequests, Unavailable, resources
from gangline.testing.gang_stories import ONE_LEAF

from .test_story import BY, SUSPEND, Suspensions

FAULTS = (Unavailable(503, "", "no"), TooManyRequests(429, "", "later"), Conflict(409, "", "changed"))
KINDS = (
    "gang",
    "urgent",
    "end",
    "fail",
    "heal",
    "restart",
    "reload",
    "rename",
    "plugin",
    "resume",
    "stop",
    "drop",
    "wait",
)
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 11), st.sampled_from([0.0, 0.3, 3.0, 11.0, 40.0])), max_size=16
)
WITHOUT, WITH = "{name: GangPreemption}", "{name: GangPreemption}, {name: Suspension}"


class Chance(Suspensions):
    """Steps at random on three leaves."""

    def __init__(self, seed: int) -> None:
        super().__init__(leaves=3, resume=60, faults=self.fault)
        self.profile += "- schedulerName: second\n  plugins: {multiPoint: {enabled: [{name: Suspension}]}}\n"
        self._chance = random.Random(seed)
        self.is_faulty = True
        self.gangs: dict[str, int] = {}
        self.urgent: list[str] = []
        self.stopped: set[str] = set()
        self.number = 0

    def fault(self, verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        """One of six writes fails, in one way or another."""
        if not self.is_faulty or verb in ("get", "list", "watch") or self._chance.random() > 1 / 6:
            return None
        return self._chance.choice(FAULTS) if resource in (resources.PODS, resources.JOBS) else None

    def step(self, what: str, number: int) -> None:
        """One step."""
        gangs = sorted(self.gangs)
        node = f"l{number // 4}-n{number % 4}"
        if what == "gang" and len(self.gangs) < 3:
            name = f"train{len(self.gangs)}"
            self.gangs[name] = 2 + number % 3
            self.add_job(name, self.gangs[name], {**ONE_LEAF, **SUSPEND})
        elif what == "urgent" and len(self.urgent) < 3:
            self.number += 1
            self.urgent.append(f"urgent{self.number}")
            self.add_job(self.urgent[-1], 4, ONE_LEAF, priorityClassName="urgent")
        elif what == "end" and self.urgent:
            self.end(self.urgent.pop(0))
        elif what in ("fail", "heal"):
            self.fail(node, status="True" if what == "heal" else "Unknown")
        elif what == "rename":
            is_plain = "schedulerName: second" in self.profile
            new = ("second", "third") if is_plain else ("third", "second")
            self.profile = self.profile.replace(f"schedulerName: {new[0]}", f"schedulerName: {new[1]}")
            self.reload()
        elif what == "plugin":
            is_there = WITH in self.profile
            self.profile = self.profile.replace(*((WITH, WITHOUT) if is_there else (WITHOUT, WITH)))
            if is_there:
                self.profile = self.profile.replace("{name: Suspension, args: {resumeSeconds: 60}}, ", "")
            self.reload()
        elif what == "reload":
            self.reload()
        elif what == "resume" and gangs:
            self.stopped.discard(name := gangs[number % len(gangs)])
            self.change(name, {"suspend": False})
        elif what == "stop" and gangs and not self.is_suspended(name := gangs[number % len(gangs)]):
            self.stopped.add(name)
            self.change(name, {"suspend": True})
        elif what == "drop" and gangs and BY in self.notes_on_job(name := gangs[number % len(gangs)]):
            if self.is_suspended(name):
                self.stopped.add(name)
            self.change(name, {}, {BY: None})

    def make_whole(self) -> None:
        """All nodes are well, and only the gangs want them."""
        self.is_faulty = False
        for each in range(12):
            self.step("heal", each)
        while self.urgent:
            self.step("end", 0)

    def state(self) -> dict[str, tuple[bool, int, bool]]:
        """For each gang whether it is suspended, how many pods have a node, and whether a record is left."""
        return {
            name: (self.is_suspended(name), len(self.bound(name)), BY in self.notes_on_job(name)) for name in self.gangs
        }


@given(STEPS, st.integers(0, 1 << 20))
def test_what_the_scheduler_has_suspended_runs_in_the_end(steps: list[tuple[str, int, float]], seed: int) -> None:
    cluster = Chance(seed)

    async def story() -> None:
        cluster.step("gang", 2)
        for what, number, seconds in steps:
            if what == "restart":
                await cluster.restart()
            cluster.step(what, number)
            await asyncio.sleep(seconds + 0.01)
        cluster.make_whole()
        await asyncio.sleep(400)
        expected = {
            name: (name in cluster.stopped, 0 if name in cluster.stopped else size, False)
            for name, size in cluster.gangs.items()
        }
        assert cluster.state() == expected, [cluster.message(pod) for pod in cluster.pods("train")]

    cluster.play(story)
