"""Readings of well-known machines, as their data sheets and `nvidia-smi topo -m` describe them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gangline.wire.custom_resources import Fabric, Hca
from gangline_agent import inventory
from gangline_agent.readings import SWITCH, Distance, Gpu, NvLink, Reading

DRIVER, CUDA = "570.172.08", (12, 8)

DGX1_LINKS = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip
"""The hybrid cube mesh of eight V100: pair to NVLinks."""


def dgx_h100() -> Reading:
    """Eight H100 at NVSwitches, 900 GB/s each."""
    return _switched(
        "NVIDIA H100 80GB HBM3", 81559, (9, 0), 4, 18, numa=(0, 0, 0, 0, 1, 1, 1, 1), pcie=5, machine="DGXH100"
    )


def hgx_a100() -> Reading:
    """Eight A100 with 40 GB at NVSwitches, 600 GB/s each."""
    return _switched(
        "NVIDIA A100-SXM4-40GB", 40960, (8, 0), 3, 12, numa=(0, 0, 0, 0, 1, 1, 1, 1), pcie=4, machine="HGX A100"
    )


def dgx_a100() -> Reading:
    """Eight A100 with 80 GB at NVSwitches, 600 GB/s each, on eight NUMA nodes."""
    numa = (3, 3, 1, 1, 7, 7, 5, 5)
    return _switched(
        "NVIDIA A100-SXM4-80GB", 81920, (8, 0), 3, 12, numa=numa, pcie=4, machine="DGXA100 920-23687-2530-000"
    )


def b200() -> Reading:
    """Eight B200 at NVSwitches, 1,800 GB/s each."""
    return _switched("NVIDIA B200", 183359, (10, 0), 5, 18, numa=(0, 0, 0, 0, 1, 1, 1, 1), pcie=5, machine="DGXB200")


def gb200() -> Reading:
    """A compute tray of a GB200 NVL72: four GPUs whose 1,800 GB/s also reach the rest of the rack."""
    return _switched("NVIDIA GB200", 189471, (10, 0), 5, 18, numa=(0, 0, 1, 1), pcie=5, machine="GB200 NVL")


def dgx_1() -> Reading:
    """Eight V100 in a hybrid cube mesh, 300 GB/s each."""
    numa = (0, 0, 0, 0, 1, 1, 1, 1)
    return _direct(
        "Tesla V100-SXM2-32GB", 32768, (7, 0), 2, DGX1_LINKS, numa, pcie=3, machine="NVIDIA DGX-1 with V100-32"
    )


def pcie_4() -> Reading:
    """Four A100 PCIe, bridged in pairs with 600 GB/s."""
    links = {(0, 1): 12, (2, 3): 12}
    return _direct("NVIDIA A100 80GB PCIe", 81920, (8, 0), 3, links, (0, 0, 1, 1), pcie=4, machine="PCIe box")


def pcie_8() -> Reading:
    """Eight L40S without NVLink, in pairs at PCIe switches."""
    return _direct("NVIDIA L40S", 46068, (8, 9), 0, {}, (0, 0, 0, 0, 1, 1, 1, 1), pcie=4, machine="PCIe box")


PRESETS: dict[str, Callable[[], Reading]] = {
    "dgx-h100": dgx_h100,
    "hgx-a100": hgx_a100,
    "dgx-a100": dgx_a100,
    "b200": b200,
    "gb200": gb200,
    "dgx-1": dgx_1,
    "pcie-4": pcie_4,
    "pcie-8": pcie_8,
}

RAILS = {"dgx-h100": 400, "hgx-a100": 200, "dgx-a100": 200, "b200": 400, "gb200": 400}
"""Gb/s of the one RDMA adapter that each GPU has in these machines."""


def fabric_of(preset: str) -> Fabric:
    """The adapters of a preset, one for each of its GPUs, on the NUMA node of the GPU."""
    if preset not in RAILS:
        return Fabric()
    gpus = PRESETS[preset]().gpus
    return Fabric(
        hcas=[
            Hca(
                name=f"mlx5_{gpu.id}",
                model="MT4129" if RAILS[preset] == 400 else "MT4123",
                ports=1,
                gbps=RAILS[preset],
                state="ACTIVE",
                numa_node=gpu.numa_node,
                gpu_direct=True,
            )
            for gpu in gpus
        ],
        cu_file_enabled=True,
        gds_version="2.25",
        nvme_peers=["nvme0", "nvme1"],
    )


def _switched(
    product: str,
    memory_mib: int,
    compute: tuple[int, int],
    generation: int,
    links: int,
    numa: Sequence[int],
    pcie: int,
    machine: str,
) -> Reading:
    """GPUs with the same number of NVLinks, all to NVSwitches, each at a PCIe root of its own."""
    nvlinks = (NvLink(SWITCH, inventory.NVLINK_GBPS[generation]),) * links
    gpus = [_gpu(index, index, product, memory_mib, compute, nvlinks, node, pcie) for index, node in enumerate(numa)]
    return _reading(gpus, {}, machine)


def _direct(
    product: str,
    memory_mib: int,
    compute: tuple[int, int],
    generation: int,
    pairs: dict[tuple[int, int], int],
    numa: Sequence[int],
    pcie: int,
    machine: str,
) -> Reading:
    """GPUs with NVLinks to each other, and two at every PCIe switch."""
    gpus = []
    for index, node in enumerate(numa):
        nvlinks: list[NvLink] = []
        for pair, count in pairs.items():
            if index in pair:
                peer = pair[0] if pair[1] == index else pair[1]
                nvlinks += [NvLink(_bus_id(peer), inventory.NVLINK_GBPS[generation])] * count
        gpus.append(_gpu(index, index // 2, product, memory_mib, compute, tuple(nvlinks), node, pcie))
    switches: dict[tuple[int, int], Distance] = {(index, index + 1): "PIX" for index in range(0, len(gpus), 2)}
    return _reading(gpus, switches, machine)


def _gpu(
    index: int,
    root: int,
    product: str,
    memory_mib: int,
    compute: tuple[int, int],
    nvlinks: tuple[NvLink, ...],
    numa_node: int,
    pcie: int,
) -> Gpu:
    return Gpu(
        id=index,
        product=product,
        memory_mib=memory_mib,
        bus_id=_bus_id(index),
        pcie_root=f"pci0000:{16 * (root + 1) - 2:02x}",
        numa_node=numa_node,
        pcie_gbps=inventory.pcie_gbps(pcie, 16),
        nvlinks=nvlinks,
        mig_capable=compute in ((8, 0), (9, 0), (10, 0)),
        compute=compute,
    )


def _bus_id(index: int) -> str:
    return f"00000000:{16 * (index + 1):02X}:00.0"


def _reading(gpus: list[Gpu], switches: dict[tuple[int, int], Distance], machine: str) -> Reading:
    """Over PCIe: the distances in ``switches``, else NODE on one NUMA node and SYS across."""
    distances: dict[tuple[int, int], Distance] = {}
    for one in gpus:
        for other in gpus[one.id + 1 :]:
            near: Distance = "NODE" if one.numa_node == other.numa_node else "SYS"
            distances[one.id, other.id] = switches.get((one.id, other.id), near)
    return Reading(gpus=tuple(gpus), distances=distances, driver=DRIVER, cuda=CUDA, machine=machine)
