"""The devices in the annotation of a bound pod, as far as they are believed; see `believing`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gangline import PodInfo, custom_resources, texts
from gangline_plugins.gpu.allocation import Allocation, names_instances
from gangline_plugins.gpu.believing import Beliefs
from gangline_plugins.gpu.node_devices import NodeDevices
from gangline_plugins.gpu.sharing import shared
from gangline_plugins.gpu.wants import Want, WantProblem


def allocation_in(
    text: str,
    pod: PodInfo,
    want: Want | WantProblem | None,
    row: int,
    node: NodeDevices,
    allocations: Mapping[str, Allocation],
    had: Allocation | None,
    beliefs: Beliefs,
) -> Allocation | None:
    """The devices that the annotation's text gives a pod on a row; None if none of them is believed.

    ``allocations`` has the devices of each placed pod, by UID; ``had`` are those that the pod had on this row before.
    """
    said, uuids = _said(text, pod)
    same = had if had is not None and _is_same(had, said, uuids, node) else None
    if same is not None and not beliefs.has_judged(pod.uid):
        beliefs.trust(pod, said)  # this scheduler has allocated these devices
        return same
    present = node.hardware.present if node.hardware is not None else None
    ids = beliefs.judge(pod, want, said, present, shared(pod, node, allocations))
    if same is not None and ids == said:
        return same
    if said and not ids:
        return None
    if ids != said or (isinstance(want, Want) and len(uuids) > max(want.count, len(ids))):
        uuids = ()
    kind: Literal["MIG", "Explicit", "Exclusive"] = "Exclusive"
    if names_instances(uuids):
        kind = "MIG"  # even if the claim has changed since
    elif not isinstance(want, Want):
        kind = "Explicit"
    allocation = Allocation(row, ids, uuids or node.uuids(ids), kind, is_firm=True)
    return node.charged(allocation, want if isinstance(want, Want) else None)


def is_given(text: str, pod: PodInfo, had: Allocation, node: NodeDevices, beliefs: Beliefs) -> bool:
    """Whether the annotation's text names the devices that this scheduler has given the pod on a node."""
    return _is_same(had, *_said(text, pod), node) and not beliefs.has_judged(pod.uid)


def text_of(pod: PodInfo) -> str | None:
    """The text of the annotation; None if the pod has none."""
    return pod.annotations.get(custom_resources.ALLOCATED)


def _said(text: str, pod: PodInfo) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The device ids in the annotation's text, and the UUIDs that the pod names."""
    return texts.device_ids(text), tuple(
        filter(None, pod.annotations.get(custom_resources.ALLOCATED_UUIDS, "").split(","))
    )


def _is_same(had: Allocation, said: tuple[int, ...], uuids: tuple[str, ...], node: NodeDevices) -> bool:
    return had.is_firm and had.ids == said and had.uuids == (uuids or node.uuids(said))
