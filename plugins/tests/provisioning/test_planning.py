"""What is due for a gang, and what a request says of itself whoever has written that."""

from __future__ import annotations

import pytest

from gangline import custom_resources, model
from gangline_plugins.provisioning import ProvisioningArgs
from gangline_plugins.provisioning.conditions import RequestPhase, RequestState, state_of
from gangline_plugins.provisioning.planning import GangView, ProvisioningStep, backoff, next_step

ARGS = ProvisioningArgs(delay_seconds=30.0, backoff_seconds=60.0, max_backoff_seconds=600.0)
NOW = 1000.0


def state(attempt: int = 1, phase: RequestPhase = RequestPhase.PENDING, base: str = "g") -> RequestState:
    return RequestState(f"{base}-{attempt}", "default", f"uid-{base}-{attempt}", attempt, phase, 0.0, "")


def step(
    *requests: RequestState, lacks: float | None = 60.0, over_for: float = 0.0, base: str = "g"
) -> ProvisioningStep:
    since = None if lacks is None else NOW - lacks
    return next_step(GangView(False, since, base, requests), over_for, NOW, ARGS)


FAILED, OTHER = state(phase=RequestPhase.FAILED), state(base="h")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (step(lacks=None), ProvisioningStep()),
        (step(lacks=10.0), ProvisioningStep(after=20.0)),
        (step(), ProvisioningStep(attempt=1)),
        (step(state()), ProvisioningStep(current=state())),
        (step(state(), lacks=None), ProvisioningStep(current=state())),
        (step(state(1), state(2)), ProvisioningStep((state(1),), current=state(2))),
        (step(FAILED, over_for=20.0), ProvisioningStep(current=FAILED, after=40.0)),
        (step(FAILED, over_for=60.0), ProvisioningStep((FAILED,), 2)),
        (step(FAILED, over_for=60.0, lacks=None), ProvisioningStep(current=FAILED)),
        (step(OTHER), ProvisioningStep((OTHER,), 1)),
        (step(OTHER, base="", lacks=None), ProvisioningStep(current=OTHER)),
    ],
    ids=[
        "not known to lack anything",
        "too early",
        "the first",
        "wait for the autoscaler",
        "room is made otherwise",
        "one is left",
        "too early for the next",
        "the next",
        "no next one if it lacks nothing",
        "of another shape",
        "of an unknown shape",
    ],
)
def test_what_is_due(found: ProvisioningStep, expected: ProvisioningStep) -> None:
    assert found == expected


def test_a_gang_with_a_place_needs_no_request() -> None:
    requests = (state(), OTHER)

    assert next_step(GangView(True, None, "g", requests), 0.0, NOW, ARGS) == ProvisioningStep(remove=requests)


def test_the_time_between_requests_doubles_up_to_a_limit() -> None:
    assert [backoff(attempt, ARGS) for attempt in (1, 2, 3, 4, 5, 10**6)] == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


def request(attempt: str, *conditions: tuple[str, str, str]) -> model.ProvisioningRequest:
    written = [model.PodCondition(type_, status, last_transition_time=time) for type_, status, time in conditions]
    metadata = model.ObjectMeta("g-1", annotations={custom_resources.PROVISIONING_ATTEMPT: attempt})
    return model.ProvisioningRequest(metadata, status=model.ProvisioningRequestStatus(written))


LATE = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("conditions", "phase"),
    [
        ((), RequestPhase.PENDING),
        ((("Accepted", "True", LATE),), RequestPhase.ACCEPTED),
        ((("Accepted", "True", LATE), ("Provisioned", "False", LATE)), RequestPhase.ACCEPTED),
        ((("Accepted", "True", LATE), ("Provisioned", "True", LATE)), RequestPhase.PROVISIONED),
        ((("Provisioned", "True", LATE), ("BookingExpired", "True", LATE)), RequestPhase.EXPIRED),
        ((("Provisioned", "True", LATE), ("CapacityRevoked", "True", LATE)), RequestPhase.REVOKED),
        ((("Accepted", "True", LATE), ("Failed", "True", LATE)), RequestPhase.FAILED),
        ((("Anything", "True", LATE),), RequestPhase.PENDING),
    ],
    ids=[str(number) for number in range(8)],
)
def test_the_conditions_say_what_has_become_of_a_request(
    conditions: tuple[tuple[str, str, str], ...], phase: RequestPhase
) -> None:
    assert state_of(request("1", *conditions)).phase is phase


@pytest.mark.parametrize(
    ("attempt", "number"),
    [("3", 3), ("0", 1), ("-2", 1), ("", 1), ("\u0663", 1), ("9" * 7, 1_000_000), ("9" * 5000, 1)],
    ids=["3", "0", "negative", "none", "another digit", "much", "endless"],
)
def test_whatever_a_request_says_of_its_number_is_a_number(attempt: str, number: int) -> None:
    assert state_of(request(attempt)).attempt == number


@pytest.mark.parametrize("time", ["", "yesterday", "0001-01-01T00:00:00Z"])
def test_a_time_that_cannot_be_read_is_none(time: str) -> None:
    assert state_of(request("1", ("Failed", "True", time))).since == 0.0
