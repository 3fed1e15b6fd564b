"""Metrics of the GPUs and the fabric of nodes, made from the newest report when Prometheus asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from gangline.wire.custom_resources import Fabric, GpuDevice, GpuNodeStatusStatus

_GIGA = 1e9
_MEBI = 2**20
_DEVICE = ("node", "gpu", "uuid")
_GAUGES = {
    "gangline_gpu_healthy": ("1 where the GPU is healthy, else 0.", _DEVICE),
    "gangline_gpu_memory_bytes": ("Memory of the GPU.", _DEVICE),
    "gangline_gpu_nvlink_bandwidth_bytes_per_second": (
        "NVLink bandwidth of the GPU to all its peers, both directions together; 0 where it is not healthy.",
        _DEVICE,
    ),
    "gangline_gpu_link_bandwidth_bytes_per_second": (
        "Bandwidth from the GPU to a peer, by kind of link: NVLINK, PIX, PXB, PHB, NODE, SYS.",
        ("node", "gpu", "peer", "kind"),
    ),
    "gangline_gpu_mig_instances": ("MIG instances of the GPU, by profile.", ("node", "gpu", "profile")),
    "gangline_infiniband_active_ports": ("Ports of the RDMA adapter that are up.", ("node", "hca", "model")),
    "gangline_infiniband_rate_bits_per_second": ("Rate of the adapter's fastest port that is up.", ("node", "hca")),
    "gangline_infiniband_gpu_direct": ("1 where GPUs read and write through the adapter, else 0.", ("node", "hca")),
    "gangline_cufile_enabled": ("1 where GPUDirect Storage is set up, else 0.", ("node",)),
}
"""Name to help and labels."""


class NodeMetrics(Collector):
    """Gauges of every node with a report."""

    def __init__(self, newest: Callable[[], Mapping[str, GpuNodeStatusStatus]]) -> None:
        self._newest = newest

    def collect(self) -> Iterator[Metric]:
        """The gauges of all nodes; the Prometheus registry calls this."""
        gauges = {name: GaugeMetricFamily(name, help, labels=labels) for name, (help, labels) in _GAUGES.items()}
        info = InfoMetricFamily("gangline_gpu", "What GPU it is, and its island of NVLinks.", labels=_DEVICE)
        for node, status in self._newest().items():
            for device in status.devices:
                _of_device(gauges, node, device)
                about = {"model": device.model, "island": device.island, "reason": device.reason}
                info.add_metric((node, str(device.id), device.uuid), about)
            if status.fabric is not None:
                _of_fabric(gauges, node, status.fabric)
        yield from gauges.values()
        yield info


def _of_device(gauges: Mapping[str, GaugeMetricFamily], node: str, device: GpuDevice) -> None:
    gpu = str(device.id)
    labels = (node, gpu, device.uuid)
    gauges["gangline_gpu_healthy"].add_metric(labels, device.health == "Healthy")
    gauges["gangline_gpu_memory_bytes"].add_metric(labels, device.memory_mi_b * _MEBI)
    gauges["gangline_gpu_nvlink_bandwidth_bytes_per_second"].add_metric(labels, device.bandwidth_gbps * _GIGA)
    for link in device.links:
        to = (node, gpu, str(link.peer), link.kind)
        gauges["gangline_gpu_link_bandwidth_bytes_per_second"].add_metric(to, link.gbps * _GIGA)
    for profile in dict.fromkeys(mig.profile for mig in device.mig_devices):
        number = sum(mig.profile == profile for mig in device.mig_devices)
        gauges["gangline_gpu_mig_instances"].add_metric((node, gpu, profile), number)


def _of_fabric(gauges: Mapping[str, GaugeMetricFamily], node: str, fabric: Fabric) -> None:
    for hca in fabric.hcas:
        gauges["gangline_infiniband_active_ports"].add_metric((node, hca.name, hca.model), hca.ports)
        gauges["gangline_infiniband_rate_bits_per_second"].add_metric((node, hca.name), hca.gbps * _GIGA)
        gauges["gangline_infiniband_gpu_direct"].add_metric((node, hca.name), hca.gpu_direct)
    gauges["gangline_cufile_enabled"].add_metric((node,), fabric.cu_file_enabled)
