"""Failpoints: named places in the code at which a test lets the process die or hang.

`failpoint("bind.before-write")` does nothing unless the environment variable GANGLINE_FAILPOINTS names that place:
`NAME=ACTION` or `NAME=ACTION@PASS`, several separated by commas. The action `exit` kills the process with SIGKILL, so
that it can tidy up nothing; `sleep:SECONDS` stops the thread for so long. The action is for the first pass, with `@3`
for the third; at other passes nothing happens.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from gangline.errors import ConfigError

log = logging.getLogger(__name__)

VARIABLE = "GANGLINE_FAILPOINTS"
LONGEST_SLEEP = 600.0
NAMES: Mapping[str, str] = MappingProxyType(
    {
        "bind.before-locks": "A group is decided, and nothing is written for it but nominations.",
        "nominate.before-write": "A pod whose binding takes long is decided; before its nomination is written.",
        "nominate.after-write": "After the nomination of such a pod is written.",
        "lock.before-write": "Before a lease is created or replaced to lock devices.",
        "lock.after-write": "After such a lease is written, before the next lease of the pod.",
        "lock.before-removal": "Before a lease that is no longer needed is deleted.",
        "lock.after-removal": "After such a lease is deleted.",
        "claim.before-finalizer": "Before a ResourceClaim gets the finalizer that keeps it.",
        "claim.before-status": "A ResourceClaim has the finalizer; before it gets its devices and the reservation.",
        "claim.after-status": "The claim has its devices; the pod is not bound.",
        "bind.before-barrier": "All pre-binds of a group have ended, and no member is bound.",
        "bind.after-barrier": "The check of the group has passed; the first bind is due.",
        "bind.before-write": "Before a Binding with its annotations is sent; pass 2 is between two binds of a gang.",
        "bind.after-write": "The API server has answered that the pod is bound.",
        "bind.after-group": "All members of a group are bound, and nothing has been done after that.",
        "annotation.before-write": "Before devices that were chosen late are written to a bound pod.",
        "annotation.after-write": "After such devices are written to a bound pod.",
        "preemption.before-removal": "All victims are marked; before one of them is deleted.",
        "preemption.after-removal": "A victim is deleted; pass 2 is after the second one.",
        "recovery.before-eviction": "Room is kept for a gang that has lost members; before another member is evicted.",
        "recovery.after-eviction": "After another member is evicted; pass 2 is after the second one.",
        "recovery.before-removal": "All other members that have to go are evicted; before a lost member is removed.",
        "recovery.after-removal": "The lost member is marked and deleted; its replacement has no node yet.",
    }
)
"""All failpoints, and where they are."""
_ENTRY = re.compile(
    r"(?P<name>[a-z.-]+)=(?:exit|sleep:(?P<seconds>\d+(?:\.\d+)?))(?:@(?P<turn>[1-9]\d{0,8}))?", re.ASCII
)


class FailpointAction(msgspec.Struct, frozen=True):
    """What happens at one pass of a failpoint."""

    turn: int
    sleep: float | None
    """Seconds; None kills the process."""


_armed: frozenset[str] = frozenset()
_actions: dict[str, FailpointAction] = {}
_passes: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Carry out the action that was chosen for this place, if there is one. The name is one of NAMES."""
    if name in _armed:
        _pass(name)


def read(text: str) -> dict[str, FailpointAction]:
    """The actions in the text of the variable, by name. Raises ConfigError for an unknown name."""
    found: dict[str, FailpointAction] = {}
    for entry in filter(None, (each.strip() for each in text.split(","))):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ConfigError(VARIABLE, entry, "is not NAME=exit or NAME=sleep:SECONDS, with @PASS or without")
        if match["name"] not in NAMES:
            raise ConfigError(VARIABLE, match["name"], f"no such failpoint; there are {', '.join(NAMES)}")
        seconds = float(match["seconds"]) if match["seconds"] is not None else None
        if seconds is not None and seconds > LONGEST_SLEEP:
            raise ConfigError(VARIABLE, entry, f"sleeps for more than {LONGEST_SLEEP:g} s")
        found[match["name"]] = FailpointAction(int(match["turn"] or 1), seconds)
    return found


def arm(text: str) -> None:
    """Enable the failpoints that the text names, and no other ones. Raises ConfigError."""
    global _armed
    actions = read(text)
    _actions.clear()
    _actions.update(actions)
    _passes.clear()
    _armed = frozenset(actions)
    if actions:
        log.warning("failpoints are enabled: this process dies or hangs at %s", ", ".join(sorted(actions)))


def _pass(name: str) -> None:
    _passes[name] += 1
    action = _actions[name]
    if _passes[name] != action.turn:
        return
    if action.sleep is None:
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        time.sleep(action.sleep)
