"""Writes allocations as the status of a claim has them: devices, configuration, node selector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gangline.dra.asking import Alternative, ClaimRequest
from gangline.model.resource_claims import (
    AllocatedConfiguration,
    AllocatedDevice,
    AllocatedDevices,
    ResourceClaim,
    ResourceClaimAllocation,
)
from gangline.model.resource_slices import Device, ResourceSliceSpec
from gangline.model.selecting import NodeSelector, NodeSelectorTerm, Requirement


class Gift(NamedTuple):
    """A device for a request."""

    alternative: Alternative
    device: Device
    spec: ResourceSliceSpec
    """The spec of the device's slice."""
    consumed: dict[str, str] | None
    """By capacity: the amount that the share consumes; None for a device that the claim has for itself."""


def allocation(
    claim: ResourceClaim,
    requests: Sequence[ClaimRequest],
    chosen: Sequence[Alternative],
    gifts: Sequence[Gift],
    node_name: str,
    share_id: Callable[[], str],
) -> ResourceClaimAllocation:
    """The allocation of a claim. `chosen` has the chosen alternative of each of the `requests`, in their order."""
    results = [_device(gift, share_id) for gift in gifts]
    config = [*_of_classes(chosen), *_of_claim(claim, requests, chosen)]
    return ResourceClaimAllocation(AllocatedDevices(results, config), _node_selector(gifts, node_name))


def _device(gift: Gift, share_id: Callable[[], str]) -> AllocatedDevice:
    alternative, device = gift.alternative, gift.device
    return AllocatedDevice(
        driver=gift.spec.driver,
        pool=gift.spec.pool.name,
        device=device.name,
        admin_access=True if alternative.is_admin else None,
        request=alternative.name,
        share_id=share_id() if gift.consumed is not None else None,
        consumed_capacity={**gift.consumed} if gift.consumed else None,
        tolerations=list(alternative.tolerations),
        binding_conditions=device.binding_conditions or [],
        binding_failure_conditions=device.binding_failure_conditions or [],
    )


def _of_classes(chosen: Sequence[Alternative]) -> list[AllocatedConfiguration]:
    """The configuration from DeviceClasses: that of each class once, for all requests of the class."""
    if not any([each.device_class.spec.config for each in chosen]):
        return []
    names: dict[str, list[str]] = {}
    for each in chosen:
        names.setdefault(each.device_class.metadata.name, []).append(each.name)
    classes = {each.device_class.metadata.name: each.device_class for each in chosen}
    return [
        AllocatedConfiguration("FromClass", requests, config.opaque)
        for name, requests in names.items()
        for config in classes[name].spec.config
    ]


def _of_claim(
    claim: ResourceClaim, requests: Sequence[ClaimRequest], chosen: Sequence[Alternative]
) -> list[AllocatedConfiguration]:
    """The configuration from the claim: each entry once or, as in kube-scheduler, once for each request it names."""
    found = []
    for config in claim.spec.devices.config:
        times = 1
        if config.requests:
            named = zip(requests, chosen, strict=True)
            times = sum(request.name in config.requests or each.name in config.requests for request, each in named)
        found += [AllocatedConfiguration("FromClaim", list(config.requests), config.opaque) for _ in range(times)]
    return found


def _node_selector(gifts: Sequence[Gift], node_name: str) -> NodeSelector | None:
    """A selector for the nodes on which all devices can be used; None for all nodes."""
    fields: list[Requirement] = []
    expressions: list[Requirement] = []
    for gift in gifts:
        by_device = gift.spec.per_device_node_selection
        place: Device | ResourceSliceSpec = gift.device if by_device else gift.spec
        if place.node_name is not None or gift.device.binds_to_node:
            only = Requirement("metadata.name", "In", [node_name])
            return NodeSelector([NodeSelectorTerm(match_fields=[only])])
        for term in place.node_selector.node_selector_terms[:1] if place.node_selector is not None else ():
            _merge(term.match_fields, fields)
            _merge(term.match_expressions, expressions)
    if not fields and not expressions:
        return None
    return NodeSelector([NodeSelectorTerm(expressions, fields)])


def _merge(requirements: Sequence[Requirement], into: list[Requirement]) -> None:
    """Add to `into` the requirements that it lacks; the order of values does not count."""
    for each in requirements:
        key = each.key, each.operator, frozenset(each.values)
        if all(key != (other.key, other.operator, frozenset(other.values)) for other in into):
            into.append(each)
