"""DeviceTaintRules of dynamic resource allocation (resource.k8s.io/v1beta2): taints that come from no driver."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gangline.model.base import Object, ObjectMeta

_Name = Annotated[str, msgspec.Meta(max_length=253)]
"""The API limits names of pools to this length, and names of drivers and devices to less. A longer name is an error."""


class DeviceTaintSelector(Object):
    """The devices that a rule means: those of this driver, pool and name. A field that is missing means any."""

    driver: _Name | None = None
    pool: _Name | None = None
    device: _Name | None = None


class RuleTaint(Object):
    """The taint of a rule. A text longer than the API allows is an error."""

    key: Annotated[str, msgspec.Meta(max_length=317)]
    effect: Annotated[str, msgspec.Meta(max_length=63)]
    value: Annotated[str, msgspec.Meta(max_length=63)] = ""
    time_added: Annotated[str, msgspec.Meta(max_length=63)] | None = None


class DeviceTaintRuleSpec(Object):
    """spec of a DeviceTaintRule."""

    taint: RuleTaint
    device_selector: DeviceTaintSelector | None = None


class DeviceTaintRule(Object):
    """A taint for all devices that its selector selects."""

    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec
    api_version: str = "resource.k8s.io/v1beta2"
    kind: str = "DeviceTaintRule"
