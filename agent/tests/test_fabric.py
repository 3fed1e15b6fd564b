"""RDMA adapters and GPUDirect Storage, read from files."""

from __future__ import annotations

from pathlib import Path

from gangline.wire.custom_resources import Fabric, Hca
from gangline_agent import fabric


def write(root: Path, **files: str) -> None:
    """Files under ``root``; in the names ``__`` stands for a slash and ``_DOT_`` for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def add_hca(root: Path, name: str, *states: tuple[str, str]) -> None:
    folder = root / "sys/class/infiniband" / name
    for number, (state, rate) in enumerate(states, start=1):
        write(folder / "ports" / str(number), state=state, rate=rate)
    write(folder, hca_type="MT4129", device__numa_node="1")


def test_a_node_without_any_of_it_has_an_empty_fabric(tmp_path: Path) -> None:
    assert fabric.read(tmp_path) == Fabric()


def test_adapters_count_their_active_ports(tmp_path: Path) -> None:
    add_hca(tmp_path, "mlx5_1", ("4: ACTIVE", "200 Gb/sec (4X HDR)"), ("4: ACTIVE", "400 Gb/sec (4X NDR)"))
    add_hca(tmp_path, "mlx5_0", ("1: DOWN", "10 Gb/sec (4X SDR)"))

    assert fabric.read_hcas(tmp_path) == [
        Hca(name="mlx5_0", model="MT4129", ports=0, gbps=0, state="DOWN", numa_node=1),
        Hca(name="mlx5_1", model="MT4129", ports=2, gbps=400, state="ACTIVE", numa_node=1),
    ]


def test_gpu_direct_is_on_with_the_peer_memory_module(tmp_path: Path) -> None:
    add_hca(tmp_path, "mlx5_0", ("4: ACTIVE", "400 Gb/sec (4X NDR)"))
    write(tmp_path, sys__module__nvidia_peermem__refcnt="0")

    assert [hca.gpu_direct for hca in fabric.read_hcas(tmp_path)] == [True]


def test_cufile_needs_its_configuration_and_the_kernel_module(tmp_path: Path) -> None:
    write(tmp_path, etc__cufile_DOT_json="{}")
    without_module = fabric.read(tmp_path)
    (tmp_path / "proc/driver/nvidia-fs").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia-fs/version").write_text("version: 2.25.7\n")
    (tmp_path / "sys/class/nvme/nvme0").mkdir(parents=True)

    assert without_module == Fabric()
    assert fabric.read(tmp_path) == Fabric(cu_file_enabled=True, gds_version="2.25.7", nvme_peers=["nvme0"])


def test_the_numa_node_of_a_bus_id_as_nvml_writes_it_is_found(tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")

    assert fabric.numa_node(tmp_path, "00000000:3B:00.0") == 1
    assert fabric.numa_node(tmp_path, "00000000:3C:00.0") == -1
