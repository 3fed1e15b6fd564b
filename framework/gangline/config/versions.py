"""The versions of KubeSchedulerConfiguration that are read, and the plugins that older versions had.

v1beta3 has v1's fields and default weights. Only the set of plugins differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.config.explaining import quoted
from gangline.errors import ConfigError

KIND = "KubeSchedulerConfiguration"
GROUP = "kubescheduler.config.k8s.io/"
V1 = f"{GROUP}v1"
V1BETA3 = f"{GROUP}v1beta3"
SUPPORTED = (V1, V1BETA3)

# Plugins that older versions had, and the plugins that do their work now.
REPLACED_BY: Mapping[str, str] = {
    "SelectorSpread": "PodTopologySpread",
    "NodeLabel": "NodeAffinity",
    "NodePreferAvoidPods": "TaintToleration",
    "ServiceAffinity": "InterPodAffinity",
    "NodeResourcesLeastAllocated": "NodeResourcesFit with scoringStrategy LeastAllocated",
    "NodeResourcesMostAllocated": "NodeResourcesFit with scoringStrategy MostAllocated",
    "RequestedToCapacityRatio": "NodeResourcesFit with scoringStrategy RequestedToCapacityRatio",
    "AzureDiskLimits": "NodeVolumeLimits",
    "CinderLimits": "NodeVolumeLimits",
    "EBSLimits": "NodeVolumeLimits",
    "GCEPDLimits": "NodeVolumeLimits",
}

OURS: Mapping[str, tuple[str, ...]] = {"GpuClaimPlugin": ("GpuClaim", "DeviceLease")}
"""Plugins of other GPU schedulers, and the plugins that do their work in Gangline."""


def check_version(file: str, document: Mapping[str, Any]) -> None:
    """Raise ConfigError unless ``document`` is a configuration of a supported version."""
    for key, allowed in (("kind", (KIND,)), ("apiVersion", SUPPORTED)):
        use = f"supported: {', '.join(allowed)}"
        if key not in document:
            raise ConfigError(file, key, f"required field is missing; {use}")
        if document[key] not in allowed:
            raise ConfigError(file, key, f"{quoted(document[key])} is not supported; {use}")


def check_not_removed(file: str, path: str, plugin: str) -> None:
    """Raise ConfigError if ``plugin`` was removed from Kubernetes; says what to use instead."""
    if plugin in REPLACED_BY:
        why = f"plugin {plugin} was removed from Kubernetes; use {REPLACED_BY[plugin]}"
        raise ConfigError(file, path, why)
