"""What the claims of a pod ask for, read and checked: requests with their alternatives, and constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gangline.bounds import check_count
from gangline.errors import InvalidObject, MissingClass
from gangline.model.base import Quantity
from gangline.model.resource_claims import (
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from gangline.model.resource_slices import DeviceClass, DeviceSelector
from gangline.quantity import milli

MOST_DEVICES = 32
"""Devices of one claim; its status has no room for more."""
_MOST_ENTRIES = 32
"""Requests, constraints or configurations of a claim, and selectors of a request; the API takes no more."""
_MOST_ALTERNATIVES = 8
_MOST_IN_ALL = 512
"""Alternatives of all requests of all claims of a pod together: two claims may have as many as the API takes."""
_MOST_TOLERATIONS = 16


class Alternative(msgspec.Struct, frozen=True):
    """One way to satisfy a request; most requests have a single alternative."""

    claim: int
    request: int
    name: str
    """The name in the allocation: REQUEST, or REQUEST/SUBREQUEST if the request lists alternatives."""
    base: str
    """The name of the request."""
    device_class: DeviceClass
    expressions: tuple[str, ...]
    """The selectors of the class and of the request; all must hold."""
    is_all: bool
    """Whether all devices are asked for."""
    count: int
    """How many devices are asked for; 0 with `is_all`."""
    is_admin: bool
    """Whether the claim only observes the devices."""
    tolerations: tuple[DeviceToleration, ...]
    capacity: Mapping[str, Quantity]
    """How much of the capacities of each device is asked for."""

    @property
    def least(self) -> int:
        """The smallest number of devices that satisfies the alternative; devices that it only observes do not count."""
        return 0 if self.is_admin else 1 if self.is_all else self.count

    def is_named_in(self, names: Sequence[str]) -> bool:
        """Whether the request names of a constraint include this alternative; no names include every alternative."""
        return not names or self.base in names or self.name in names


class ClaimRequest(msgspec.Struct, frozen=True):
    """A request: its alternatives, in the order of preference."""

    name: str
    alternatives: tuple[Alternative, ...]
    is_prioritized: bool
    """Whether the request lists alternatives (firstAvailable)."""


class ClaimConstraint(msgspec.Struct, frozen=True):
    """An attribute whose value the devices of a claim must have in common or, with `is_distinct`, must not."""

    attribute: str
    is_distinct: bool
    requests: tuple[str, ...]


class Ask(msgspec.Struct, frozen=True):
    """What the claims of one pod ask for together."""

    claims: tuple[ResourceClaim, ...]
    requests: tuple[tuple[ClaimRequest, ...], ...]
    """By claim."""
    constraints: tuple[tuple[ClaimConstraint, ...], ...]
    """By claim."""

    def named(self, claim: int) -> str:
        """The words for the claim with this number in messages: claim NAMESPACE/NAME."""
        metadata = self.claims[claim].metadata
        return f"claim {metadata.namespace}/{metadata.name}"

    @property
    def alternatives(self) -> list[Alternative]:
        """All alternatives of all requests, in order."""
        return [each for requests in self.requests for request in requests for each in request.alternatives]

    @property
    def least(self) -> int:
        """The smallest number of devices that satisfies all claims; devices that they only observe do not count."""
        return sum(min(each.least for each in request.alternatives) for asked in self.requests for request in asked)


def read(claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass]) -> Ask:
    """The requests and constraints of the claims. Raises InvalidObject for claims that no node can satisfy."""
    for claim in claims:
        devices, path = claim.spec.devices, _path(claim)
        check_count(f"{path}.requests", devices.requests, _MOST_ENTRIES)
        check_count(f"{path}.constraints", devices.constraints, _MOST_ENTRIES)
        check_count(f"{path}.config", devices.config, _MOST_ENTRIES)
    _check_alternatives(claims)
    return Ask(
        tuple(claims),
        tuple(_requests(number, claim, classes) for number, claim in enumerate(claims)),
        tuple(
            tuple(_constraint(each, f"{_path(claim)}.constraints[{i}]") for i, each in enumerate(_constraints(claim)))
            for claim in claims
        ),
    )


def _check_alternatives(claims: Sequence[ResourceClaim]) -> None:
    """Raise InvalidObject if the claims together have more alternatives than are read: each looks at all devices."""
    asked = [request for claim in claims for request in claim.spec.devices.requests]
    number = sum(max(1, len(request.first_available)) for request in asked)
    if number > _MOST_IN_ALL:
        text = f"the claims ask for {number} alternatives together, and at most {_MOST_IN_ALL} are read"
        raise InvalidObject("spec.resourceClaims", None, text)


def _path(claim: ResourceClaim) -> str:
    return f"claim {claim.metadata.namespace}/{claim.metadata.name}: spec.devices"


def _constraints(claim: ResourceClaim) -> list[DeviceConstraint]:
    return claim.spec.devices.constraints


def _constraint(constraint: DeviceConstraint, path: str) -> ClaimConstraint:
    if constraint.match_attribute is not None:
        return ClaimConstraint(constraint.match_attribute, False, tuple(constraint.requests))
    if constraint.distinct_attribute is not None:
        return ClaimConstraint(constraint.distinct_attribute, True, tuple(constraint.requests))
    raise InvalidObject(path, None, "neither matchAttribute nor distinctAttribute")


def _requests(number: int, claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> tuple[ClaimRequest, ...]:
    found = []
    for i, request in enumerate(claim.spec.devices.requests):
        path = f"{_path(claim)}.requests[{i}]"
        check_count(f"{path}.firstAvailable", request.first_available, _MOST_ALTERNATIVES)
        given: list[tuple[str, ExactDeviceRequest | DeviceSubRequest]]
        if request.first_available:
            given = [(f"{request.name}/{each.name}", each) for each in request.first_available]
        elif request.exactly is not None:
            given = [(request.name, request.exactly)]
        else:
            raise InvalidObject(path, None, "neither exactly nor firstAvailable")
        alternatives = tuple(_alternative(number, i, request, name, each, classes, path) for name, each in given)
        found.append(ClaimRequest(request.name, alternatives, bool(request.first_available)))
    return tuple(found)


def _alternative(
    claim: int,
    number: int,
    request: DeviceRequest,
    name: str,
    given: ExactDeviceRequest | DeviceSubRequest,
    classes: Mapping[str, DeviceClass],
    path: str,
) -> Alternative:
    device_class = classes.get(given.device_class_name)
    if device_class is None:
        raise MissingClass(f"{path}.deviceClassName", name, given.device_class_name)
    if given.allocation_mode not in ("ExactCount", "All"):
        raise InvalidObject(f"{path}.allocationMode", given.allocation_mode, "must be ExactCount or All")
    check_count(f"{path}.selectors", given.selectors, _MOST_ENTRIES)
    check_count(f"{path}.tolerations", given.tolerations, _MOST_TOLERATIONS)
    capacity = given.capacity.requests if given.capacity is not None else {}
    for quantity in capacity.values():
        milli(quantity)
    is_all = given.allocation_mode == "All"
    return Alternative(
        claim,
        number,
        name,
        request.name,
        device_class,
        (*_expressions(device_class.spec.selectors, path), *_expressions(given.selectors, path)),
        is_all,
        0 if is_all else max(0, given.count),
        isinstance(given, ExactDeviceRequest) and bool(given.admin_access),
        tuple(given.tolerations),
        capacity,
    )


def _expressions(selectors: Sequence[DeviceSelector], path: str) -> list[str]:
    expressions = [each.cel.expression for each in selectors if each.cel is not None]
    if len(expressions) < len(selectors):
        raise InvalidObject(f"{path}.selectors", None, "a selector without cel")
    return expressions
