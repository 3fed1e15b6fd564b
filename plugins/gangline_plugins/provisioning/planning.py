"""Decides what is due for one gang: a first request, the next request after a failure, or none. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gangline_plugins.provisioning.arguments import ProvisioningArgs
from gangline_plugins.provisioning.conditions import RequestState

_MOST_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class GangView:
    """A gang as far as its requests are concerned."""

    is_served: bool
    """Whether the gang has its place, or is gone: no request is needed."""
    lacks_since: float | None
    """Since when the gang has had no place, in seconds of the monotonic time; None if that is not known, or if room is
    being made for the gang otherwise."""
    base: str
    """The name of the requests that ask for the gang as it is now, up to the number; "" if that is not known."""
    requests: Sequence[RequestState]
    """The requests that there are for the gang."""


@dataclass(frozen=True, slots=True)
class ProvisioningStep:
    """What is to be done for a gang."""

    remove: tuple[RequestState, ...] = ()
    """Requests to delete."""
    attempt: int = 0
    """The number of the request to make; 0 for none."""
    current: RequestState | None = None
    """The request that stands for the gang."""
    after: float | None = None
    """Seconds until something is due; None if nothing becomes due by time alone."""


def backoff(attempt: int, args: ProvisioningArgs) -> float:
    """Seconds from the failure of this attempt to the next."""
    doubled = args.backoff_seconds * 2.0 ** min(max(0, attempt - 1), _MOST_DOUBLINGS)
    return min(doubled, args.max_backoff_seconds)


def next_step(gang: GangView, over_for: float, now: float, args: ProvisioningArgs) -> ProvisioningStep:
    """What is due for a gang. Its newest request has been over for `over_for` seconds; `now` is monotonic time."""
    if gang.is_served:
        return ProvisioningStep(remove=tuple(gang.requests))
    fitting = [each for each in gang.requests if not gang.base or each.name.rpartition("-")[0] == gang.base]
    others = tuple(each for each in gang.requests if each not in fitting)
    newest = max(fitting, key=lambda each: (each.attempt, each.name), default=None)
    older = tuple(each for each in fitting if each is not newest)
    if newest is not None and not newest.phase.is_over:
        return ProvisioningStep(older + others, current=newest)
    if gang.lacks_since is None or not gang.base:
        return ProvisioningStep(older, current=newest)
    if newest is not None:
        left = backoff(newest.attempt, args) - over_for
        if left > 0:
            return ProvisioningStep(older + others, current=newest, after=left)
        return ProvisioningStep((*gang.requests,), newest.attempt + 1)
    left = gang.lacks_since + args.delay_seconds - now
    return ProvisioningStep(after=left) if left > 0 else ProvisioningStep(others, 1)
