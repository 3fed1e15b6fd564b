"""A preemption that a plugin proposes: extenders judge it before it is carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gangline.state.pods import PodInfo
from gangline.status import Status


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods that would be removed from one node, and how many of them a disruption budget protects."""

    pods: tuple[PodInfo, ...]
    violations: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.pods, tuple) or not all(isinstance(pod, PodInfo) for pod in self.pods):
            raise TypeError("victims are a tuple of pods")


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """An answer of post_filter: candidate nodes with their victims, and a function that carries out the preemption.

    `settle` is called once with the candidates to which no extender objects: there may be none, and their victims may
    have changed. It returns what post_filter would return. Time may have passed since the proposal was made.
    """

    candidates: Mapping[str, Victims]
    settle: Callable[[Mapping[str, Victims]], Status | str]

    def __post_init__(self) -> None:
        if not isinstance(self.candidates, Mapping) or not callable(self.settle):
            raise TypeError("a proposal has a mapping of candidates, and a function that settles it")
        for node, victims in self.candidates.items():
            if not isinstance(node, str) or not isinstance(victims, Victims):
                raise TypeError(f"a candidate is the name of a node with its Victims, not {node!r}")
