"""The arguments of the plugin, and the feature gates of kube-scheduler that are among them."""

from __future__ import annotations

import msgspec

from gangline import Seconds
from gangline_plugins.dynamic_resources.orders import UPSTREAM, Order


class FeatureGates(msgspec.Struct, forbid_unknown_fields=True):
    """Feature gates of kube-scheduler, with its names and defaults."""

    taint_rules: bool = msgspec.field(default=False, name="DRADeviceTaintRules")
    """Whether devices have the taints of DeviceTaintRules too. If one profile turns this on, it is on for all profiles,
    because they share the devices.
    """
    list_attributes: bool = msgspec.field(default=False, name="DRAListTypeAttributes")
    """Whether selectors read attributes that are lists. If one profile turns this on, it is on for all profiles."""
    workload_claims: bool = msgspec.field(default=False, name="DRAWorkloadResourceClaims")
    """Whether a claim of a PodGroup is reserved for the PodGroup instead of its pods. If one profile turns this on, it
    is on for all profiles.
    """


class DynamicResourcesArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of DynamicResources."""

    allocation_order: Order = UPSTREAM
    """The order in which devices are given to claims: kube-scheduler's order (`upstream`), or the devices first that
    other claims lose least by (`best`). With `best` the nodes are scored in the same way.
    """
    binding_timeout: Seconds = Seconds(600.0)
    """The longest time that devices may take to become ready before the pod is tried again."""
    feature_gates: FeatureGates = msgspec.field(default_factory=FeatureGates)
    """Parts of kube-scheduler that are off by default and behind feature gates."""
    filter_timeout: Seconds = Seconds(10.0)
    """The longest time, in CPU seconds, that one search for devices on all nodes may take; 0 leaves only the limits
    that every decision has. What is found by then is kept, and the pod is tried again.
    """
