"""An event about one unit: only this unit is asked about, and only it is woken, also if it waits among others alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gangline import SUCCESS, Action, ClusterEvent, PodInfo, Status, unschedulable
from gangline.api.hints import OwnEvent
from gangline.model import OwnerReference
from gangline.queueing.queue import SchedulingQueue
from gangline.state.cache import Cache
from gangline.testing import SCHEDULER, make_pod

CACHE = Cache()
CHANGED = ClusterEvent("podgroups", Action.UPDATE_OTHER)
PODS = {name: make_pod(name) for name in ("a", "b", "c", "d")}


class Told:
    """Pods wait for changes of what has their names, or the names of their owners."""

    def __init__(self, gated: bool = False, kind: str | None = "k") -> None:
        self.asked: list[str] = []
        self.queue = SchedulingQueue()
        self.verdict: Status = unschedulable("held").by("G") if gated else SUCCESS
        events = {"G": (OwnEvent(CHANGED, self.hint, about=self.about, subjects=self.subjects),)}
        self.queue.serve(SCHEDULER, lambda pod, since: (since,), lambda pods: self.verdict, events)
        for pod in PODS.values():
            self.queue.add(CACHE.record(pod), 0.0)
            if (unit := self.queue.pop(0.0)) is not None:
                self.queue.requeue(unit, ["G"], "no", 0.0, kind=kind)
        self.verdict = SUCCESS

    def hint(self, pod: PodInfo, old: Any, new: Any) -> bool:
        self.asked.append(pod.name)
        return new in self.subjects(pod)

    @staticmethod
    def about(old: Any, new: Any) -> Any:
        return new

    @staticmethod
    def subjects(pod: PodInfo) -> Iterator[str]:
        yield from (pod.name, *(owner.name for owner in pod.owners))

    def changes(self, name: str) -> list[str]:
        """The pods that are tried after a change of what has the name."""
        self.asked.clear()
        self.queue.happened(CHANGED, None, name, 100.0)
        names = []
        while (unit := self.queue.pop(100.0)) is not None:
            names.append(unit.pod.name)
            self.queue.done(unit)
        return names


@pytest.mark.parametrize(("gated", "kind"), [(False, "k"), (False, None), (True, None)])
def test_only_the_unit_that_an_event_is_about_is_asked_about_and_woken(gated: bool, kind: str | None) -> None:
    told = Told(gated, kind)

    assert (told.changes("c"), told.asked) == (["c"], ["c"])
    assert (told.changes("c"), told.asked) == ([], [])
    assert (told.changes("x"), told.asked) == ([], [])
    assert (told.changes("a"), told.asked) == (["a"], ["a"])


@pytest.mark.parametrize("kind", ["k", None])
def test_a_unit_whose_pod_gets_an_owner_waits_for_changes_of_the_owner_as_well(kind: str | None) -> None:
    told = Told(kind=kind)
    owner = OwnerReference(api_version="v1", kind="Job", name="owner", uid="u")
    owned = msgspec.structs.replace(PODS["b"].metadata, owner_references=[owner])

    told.queue.update(CACHE.record(msgspec.structs.replace(PODS["b"], metadata=owned)), 50.0)

    assert told.changes("owner") == ["b"]
    assert told.changes("a") == ["a"]


def test_a_unit_is_forgotten_when_it_is_gone() -> None:
    told = Told()
    for pod in PODS.values():
        told.queue.remove(CACHE.record(pod).uid)

    assert (told.changes("a"), told.asked) == ([], [])
    assert not told.queue._wanting._concerned._units and not told.queue._wanting._concerned._subjects
