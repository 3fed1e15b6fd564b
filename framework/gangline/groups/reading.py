"""The interface of a reader of one dialect: from a pod to its group."""

from __future__ import annotations

from typing import Any, Protocol

from gangline.api.pod_group import Membership, Problem
from gangline.kube.resources import Resource
from gangline.model import Pod
from gangline.state.pods import PodInfo


class Lookup(Protocol):
    """Where readers look up the owners of pods and other objects."""

    def store(self, kind: Resource[Any]) -> Any:
        """The objects of a kind: iterate, `get(name, namespace)`, `version`."""
        ...


class Known(Lookup, Protocol):
    """A lookup that also makes records of pods; `Groups` needs both."""

    def record(self, pod: Pod) -> PodInfo:
        """The record of a pod that is placed nowhere. Raises InvalidObject."""
        ...


class Reader(Protocol):
    """One dialect in which pods say that they belong together."""

    dialect: str
    """The name of the dialect in messages and metrics."""
    watches: tuple[Resource[Any], ...]
    """The kinds that the reader looks up."""

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """The pod's group; None if the pod says nothing in this dialect. Pure: the same answer for the same state.

        Must be quick for pods that are in no group: a dictionary access or two.
        """
        ...
