"""Decides which GPUs a pod with a gpu-scheduling-map sees; the scheduler reads the map with the same parser."""

from __future__ import annotations

from gangline.wire import scheduling_map
from gangline.wire.custom_resources import ALLOCATED, SCHEDULING_MAP
from gangline_webhook.pods import CUDA_VISIBLE_DEVICES, EnvVar, Pod, from_annotation, literal

MOST_FAULTS = 5
"""Invalid lines that have a warning of their own."""


def visible_devices(pod: Pod) -> tuple[EnvVar | None, list[str]]:
    """The variable to inject, None if the map gives this pod nothing; and warnings.

    If the pod's index is known, the devices come from the map. A pod whose name is not generated yet, and whose labels
    have no index, reads them from the annotation that the scheduler sets.
    """
    found = scheduling_map.parse(pod.annotation(SCHEDULING_MAP))
    warnings = [f"{SCHEDULING_MAP}: {fault}" for fault in found.faults[:MOST_FAULTS]]
    if (more := found.skipped - MOST_FAULTS) > 0:
        warnings.append(f"{SCHEDULING_MAP}: {more} more lines cannot be used")
    index = scheduling_map.pod_index(pod.metadata)
    if index is None and not pod.metadata.name:
        return from_annotation(CUDA_VISIBLE_DEVICES, ALLOCATED), warnings
    if index is None:
        return None, [*warnings, f"{SCHEDULING_MAP}: the name {pod.metadata.name!r} and the labels hold no pod index"]
    if index not in found.entries:
        return None, [*warnings, f"{SCHEDULING_MAP}: there is no line for pod index {index}"]
    return literal(CUDA_VISIBLE_DEVICES, found.entries[index].devices), warnings
