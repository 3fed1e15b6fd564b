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
    said = texts.device_ids(text)
    uuids = tuple(filter(None, pod.annotations.get(custom_resources.ALLOCATED_UUIDS, "").split(",")))
    known = (said, uuids or node.uuids(said))
    same = had if had is not None and had.is_firm and (had.ids, had.uuids) == known else None
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
