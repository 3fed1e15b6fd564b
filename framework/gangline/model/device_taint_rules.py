"""DeviceTaintRules of dynamic resource allocation (resource.k8s.io/v1beta2): taints that drivers have not set."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gangline.model.base import Object, ObjectMeta

_Name = Annotated[str, msgspec.Meta(max_length=253)]
"""The API takes no longer name of a pool, and shorter ones of drivers and devices; a longer one cannot be read."""


class DeviceTaintSelector(Object):
    """Which devices a rule means: those of this driver, pool and name, as far as they are given."""

    driver: _Name | None = None
    pool: _Name | None = None
    device: _Name | None = None


class RuleTaint(Object):
    """The taint of a rule, in the bounds of the API: one that is larger cannot be read."""

    key: Annotated[str, msgspec.Meta(max_length=317)]
    effect: Annotated[str, msgspec.Meta(max_length=63)]
    value: Annotated[str, msgspec.Meta(max_length=63)] = ""
    time_added: Annotated[str, msgspec.Meta(max_length=63)] | None = None


class DeviceTaintRuleSpec(Object):
    """spec of a DeviceTaintRule."""

    taint: RuleTaint
    device_selector: DeviceTaintSelector | None = None


class DeviceTaintRule(Object):
    """A taint for all devices that a selector means."""

    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec
    api_version: str = "resource.k8s.io/v1beta2"
    kind: str = "DeviceTaintRule"
