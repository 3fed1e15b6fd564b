"""What every reader of a dialect offers: from a pod to its group."""

from __future__ import annotations

from typing import Any, Protocol

from gangline.api.pod_group import Membership, Problem
from gangline.kube.resources import Resource
from gangline.state.pods import PodInfo


class Lookup(Protocol):
    """Where readers look up the objects that stand behind pods."""

    def store(self, kind: Resource[Any]) -> Any:
        """The objects of a kind: iterate, `get(name, namespace)`, `version`."""
        ...


class Reader(Protocol):
    """One dialect in which pods say that they belong together."""

    dialect: str
    """Its name, as it stands in messages and metrics."""
    watches: tuple[Resource[Any], ...]
    """The kinds that it looks up."""

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """The pod's group; None where the pod says nothing in this dialect. Pure: the same answer for the same state.

        Quick for pods that are in no group: a dictionary access or two.
        """
        ...
