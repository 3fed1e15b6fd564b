"""The arguments of the plugin, and the feature gates of kube-scheduler that are among them."""

from __future__ import annotations

import msgspec

from gangline import Seconds
from gangline_plugins.dynamic_resources.orders import UPSTREAM, Order


class FeatureGates(msgspec.Struct, forbid_unknown_fields=True):
    """Feature gates of kube-scheduler, with its names and defaults."""

    taint_rules: bool = msgspec.field(default=False, name="DRADeviceTaintRules")
    """Whether devices have the taints of DeviceTaintRules too. What one profile turns on holds for all: the devices
    are those of all profiles.
    """
    list_attributes: bool = msgspec.field(default=False, name="DRAListTypeAttributes")
    """Whether selectors read attributes that are lists. What one profile turns on holds for all."""
    workload_claims: bool = msgspec.field(default=False, name="DRAWorkloadResourceClaims")
    """Whether the claims of PodGroups are reserved for these. What one profile turns on holds for all."""


class DynamicResourcesArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of DynamicResources."""

    allocation_order: Order = UPSTREAM
    """In which order devices are given: in that of kube-scheduler (`upstream`), or first those with which least is lost
    for other claims (`best`), which decides between nodes too.
    """
    binding_timeout: Seconds = Seconds(600.0)
    """The longest time that devices may take to become ready before the pod is tried again."""
    feature_gates: FeatureGates = msgspec.field(default_factory=FeatureGates)
    """What kube-scheduler does only behind feature gates."""
    filter_timeout: Seconds = Seconds(10.0)
    """The longest time, in CPU seconds, that one search for devices on all nodes may take; 0 leaves only the limits
    that every decision has. What is found by then is kept, and the pod is tried again.
    """
