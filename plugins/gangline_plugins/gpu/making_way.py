"""Pods with guessed devices make way for pods whose devices are known.

A pod that runs without an annotation of its devices is counted on guessed devices. When a pod turns out to have some of
these devices, the guess moves to others. The removal of that pod moves the guess back if nothing else has happened on
the node since, so a step of a transaction that is undone leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.choosing import ChoiceTables
from gangline_plugins.gpu.node_devices import NodeDevices
from gangline_plugins.gpu.taken_off import REMEMBERED
from gangline_plugins.gpu.wants import Want, Wants
from gangline_plugins.latest import Latest

Hold = Callable[[str, NodeDevices, Allocation], None]
"""Start to count these devices of the node for the pod with this UID."""


class _Moved(NamedTuple):
    """The guesses of pods before they were moved, in this order, and the state of the node afterwards."""

    state: int
    guesses: list[tuple[str, Allocation]]


class MakingWay:
    """The guesses that were moved for pods that are on nodes now."""

    def __init__(self, allocations: Mapping[str, Allocation], hold: Hold, wants: Wants, tables: ChoiceTables) -> None:
        """``allocations`` has the devices of all pods by UID. ``hold`` gives a pod devices, there and on the node."""
        self._allocations = allocations
        self._hold = hold
        self._wants = wants
        self._tables = tables
        self._moved: Latest[str, _Moved] = Latest(REMEMBERED)
        """By UID of the pod to which others have made way."""

    def make(self, uid: str, allocation: Allocation, node: NodeDevices, row: int) -> None:
        """Move pods with guessed devices off the devices that the pod turns out to have."""
        guesses, mask, allocations = [], allocation.mask, self._allocations
        for other, pod in list(node.pods.items()):
            guess = allocations.get(other)
            if guess is None or guess.is_firm or other == uid or not guess.mask & mask:
                continue
            want = self._wants.of(pod)
            if isinstance(want, Want):
                node.hold(other, guess, -1)
                self._hold(other, node, node.choose(want, row, self._tables, pod.scheduler_name) or guess)
                guesses.append((other, guess))
        if guesses:
            self._moved.keep(uid, _Moved(node.state, guesses))

    def concerns(self, uid: str, allocation: Allocation, node: NodeDevices) -> bool:
        """Whether pods with guessed devices have made way for the pod, or would now."""
        if uid in self._moved:
            return True
        if all([node.refs[id] < 2 for id in allocation.ids if id < len(node.refs)]):
            return False  # nobody else has any of its devices
        guesses = [self._allocations.get(other) for other in node.pods if other != uid]
        return any(guess is not None and not guess.is_firm and guess.mask & allocation.mask for guess in guesses)

    def leave(self, uid: str, node: NodeDevices) -> list[tuple[str, Allocation]]:
        """The guesses to be put back by `put_back` when the pod, which is still on the node, has been removed."""
        moved = self._moved.pop(uid, None)
        return moved.guesses if moved is not None and moved.state == node.state else []

    def put_back(self, guesses: list[tuple[str, Allocation]], node: NodeDevices) -> None:
        """Give pods their guessed devices of before back."""
        for uid, guess in reversed(guesses):
            node.hold(uid, self._allocations[uid], -1)
            self._hold(uid, node, guess)
