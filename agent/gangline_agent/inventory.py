"""Makes a GpuNodeStatus of a reading: islands, links with their bandwidth, health and conditions.

Rules
- Bandwidths are GB/s of both directions together, as in data sheets.
- Two GPUs with NVSwitches reach each other with all links of the GPU with fewer links. Without NVSwitches only the
  links between the two GPUs count.
- GPUs that NVLinks connect, directly or over other GPUs, are one island; a GPU without NVLinks is its own island.
- An unhealthy GPU keeps its place, its island and its links, and has the bandwidth 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gangline.clock import rfc3339
from gangline.model import PodCondition
from gangline.wire.custom_resources import DeviceLink, Fabric, GpuDevice, GpuNodeStatusStatus, MigDevice
from gangline_agent.readings import SWITCH, Gpu, Reading, Unavailable

NVML_AVAILABLE = "NVMLAvailable"

NVLINK_GBPS = {1: 40.0, 2: 50.0, 3: 50.0, 4: 50.0, 5: 100.0, 6: 100.0}
"""NVLink generation to GB/s of one link."""
PCIE_LANE_GBPS = {1: 0.5, 2: 1.0, 3: 2.0, 4: 4.0, 5: 8.0, 6: 16.0}
"""PCIe generation to GB/s of one lane."""


def pcie_gbps(generation: int, width: int) -> float:
    """GB/s of a PCIe slot; 0 for a generation that is not known."""
    return PCIE_LANE_GBPS.get(generation, 0.0) * width


def status(
    read: Reading | Unavailable, fabric: Fabric, now: float, before: GpuNodeStatusStatus | None = None
) -> GpuNodeStatusStatus:
    """The status to publish at ``now`` (seconds since the epoch); ``before`` is the one published last.

    Without NVML there are no devices, and the condition NVMLAvailable says why.
    """
    reading = read if isinstance(read, Reading) else Reading()
    found = devices(reading)
    return GpuNodeStatusStatus(
        total=len(found),
        devices=found,
        fabric=_with_clique(fabric, reading.gpus),
        driver_version=reading.driver,
        heartbeat_time=rfc3339(now),
        conditions=[_condition(read, now, before)],
    )


def devices(reading: Reading) -> list[GpuDevice]:
    """The GPUs in the order of their ids."""
    nvlink = _nvlink_gbps(reading.gpus)
    named = _islands([gpu.id for gpu in reading.gpus], nvlink)
    in_order = sorted(reading.gpus, key=lambda gpu: gpu.id)
    return [
        GpuDevice(
            id=gpu.id,
            uuid=gpu.uuid,
            model=gpu.product,
            memory_mi_b=gpu.memory_mib,
            health="Unhealthy" if gpu.problems else "Healthy",
            reason="; ".join(gpu.problems),
            bandwidth_gbps=0 if gpu.problems else int(_total_gbps(gpu)),
            island=named[gpu.id],
            numa_node=gpu.numa_node,
            links=_links(gpu, in_order, reading, nvlink),
            mig_devices=[MigDevice(uuid=mig.uuid, profile=mig.profile, memory_mi_b=mig.memory_mib) for mig in gpu.mig],
        )
        for gpu in in_order
    ]


def islands(gpus: Sequence[Gpu]) -> dict[int, str]:
    """The id of each GPU and the name of its island."""
    return _islands([gpu.id for gpu in gpus], _nvlink_gbps(gpus))


def differs(one: GpuNodeStatusStatus, other: GpuNodeStatusStatus) -> bool:
    """Whether two statuses differ in more than their times."""

    def said(what: GpuNodeStatusStatus) -> tuple[object, ...]:
        conditions = [(each.type, each.status, each.reason, each.message) for each in what.conditions]
        return what.total, what.devices, what.fabric, what.driver_version, conditions

    return said(one) != said(other)


def _total_gbps(gpu: Gpu) -> float:
    return sum(link.gbps for link in gpu.nvlinks)


def _nvlink_gbps(gpus: Sequence[Gpu]) -> dict[tuple[int, int], float]:
    """Each pair of ids that NVLinks connect, the smaller id first, with the GB/s between them."""
    found: dict[tuple[int, int], float] = {}
    linked = [gpu for gpu in gpus if gpu.nvlinks]
    for one in linked:
        for other in linked:
            if one.id < other.id and (gbps := min(_towards(one, other), _towards(other, one))):
                found[one.id, other.id] = gbps
    return found


def _towards(gpu: Gpu, peer: Gpu) -> float:
    """GB/s of the NVLinks over which a GPU reaches a peer."""
    direct = sum(link.gbps for link in gpu.nvlinks if peer.bus_id and link.peer == peer.bus_id)
    switched = any(link.peer == SWITCH for link in peer.nvlinks)
    return direct + (sum(link.gbps for link in gpu.nvlinks if link.peer == SWITCH) if switched else 0.0)


def _islands(ids: Sequence[int], nvlink: Mapping[tuple[int, int], float]) -> dict[int, str]:
    """Each id and the name of its island."""
    lowest = {id_: id_ for id_ in ids}
    for _ in ids:  # as often as the longest way is long
        for one, other in nvlink:
            lowest[one] = lowest[other] = min(lowest[one], lowest[other])
    linked = {id_ for pair in nvlink for id_ in pair}
    groups = {first: f"nvlink-group-{index}" for index, first in enumerate(sorted({lowest[id_] for id_ in linked}))}
    return {id_: groups[lowest[id_]] if id_ in linked else f"gpu-{id_}" for id_ in ids}


def _links(
    gpu: Gpu, peers: Sequence[Gpu], reading: Reading, nvlink: Mapping[tuple[int, int], float]
) -> list[DeviceLink]:
    links = []
    for peer in peers:
        if peer.id == gpu.id:
            continue
        pair = min(gpu.id, peer.id), max(gpu.id, peer.id)
        if pair in nvlink:
            links.append(DeviceLink(peer=peer.id, kind="NVLINK", gbps=nvlink[pair]))
        elif pair in reading.distances:
            pcie = min(gpu.pcie_gbps, peer.pcie_gbps)
            links.append(DeviceLink(peer=peer.id, kind=reading.distances[pair], gbps=pcie))
    return links


def _with_clique(fabric: Fabric, gpus: Sequence[Gpu]) -> Fabric:
    """The fabric with the clique that all GPUs are in, if they agree."""
    cliques = {gpu.clique for gpu in gpus if gpu.clique}
    return Fabric(
        clique=cliques.pop() if len(cliques) == 1 else "",
        hcas=fabric.hcas,
        cu_file_enabled=fabric.cu_file_enabled,
        gds_version=fabric.gds_version,
        nvme_peers=fabric.nvme_peers,
    )


def _condition(read: Reading | Unavailable, now: float, before: GpuNodeStatusStatus | None) -> PodCondition:
    """NVMLAvailable; it keeps its transition time while its status stays."""
    condition = PodCondition(type=NVML_AVAILABLE, status="True", reason="Read", message="NVML answers")
    if isinstance(read, Unavailable):
        condition = PodCondition(type=NVML_AVAILABLE, status="False", reason=read.reason, message=read.message)
    condition.last_transition_time = rfc3339(now)
    for old in before.conditions if before else []:
        if (old.type, old.status) == (condition.type, condition.status):
            condition.last_transition_time = old.last_transition_time
    return condition
