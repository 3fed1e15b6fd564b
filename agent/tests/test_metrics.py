"""What Prometheus is told of a node's GPUs, their links and its adapters."""

from __future__ import annotations

import aiohttp
from prometheus_client import CollectorRegistry

from gangline.process.endpoints import Endpoints, Served
from gangline.wire.custom_resources import DeviceLink, Fabric, GpuDevice, GpuNodeStatusStatus, Hca
from gangline_agent.main import Parts, pages
from gangline_agent.metrics import NodeMetrics

STATUS = GpuNodeStatusStatus(
    devices=[
        GpuDevice(
            id=0,
            uuid="GPU-0",
            health="Healthy",
            memory_mi_b=1024,
            bandwidth_gbps=900,
            links=[DeviceLink(1, "NVLINK", 900.0)],
        ),
        GpuDevice(id=1, uuid="GPU-1", health="Unhealthy", reason="XID 79", links=[DeviceLink(0, "NVLINK", 900.0)]),
    ],
    fabric=Fabric(hcas=[Hca("mlx5_0", model="ConnectX-7", ports=1, gbps=400, gpu_direct=True)], cu_file_enabled=True),
)


def registry() -> CollectorRegistry:
    found = CollectorRegistry()
    found.register(NodeMetrics(lambda: {"a": STATUS}))
    return found


def test_health_and_nvlink_of_each_gpu_are_told() -> None:
    value = registry().get_sample_value

    assert value("gangline_gpu_healthy", {"node": "a", "gpu": "0", "uuid": "GPU-0"}) == 1
    assert value("gangline_gpu_healthy", {"node": "a", "gpu": "1", "uuid": "GPU-1"}) == 0
    nvlink = "gangline_gpu_nvlink_bandwidth_bytes_per_second"
    assert value(nvlink, {"node": "a", "gpu": "0", "uuid": "GPU-0"}) == 900e9
    link = {"node": "a", "gpu": "1", "peer": "0", "kind": "NVLINK"}
    assert value("gangline_gpu_link_bandwidth_bytes_per_second", link) == 900e9


def test_the_adapters_are_told() -> None:
    value = registry().get_sample_value

    assert value("gangline_infiniband_active_ports", {"node": "a", "hca": "mlx5_0", "model": "ConnectX-7"}) == 1
    assert value("gangline_infiniband_rate_bits_per_second", {"node": "a", "hca": "mlx5_0"}) == 400e9
    assert value("gangline_infiniband_gpu_direct", {"node": "a", "hca": "mlx5_0"}) == 1


async def test_the_agent_serves_them_beside_its_health() -> None:
    parts = Parts((), lambda: None, lambda: {"a": STATUS})
    served = Served(Endpoints("127.0.0.1:0", "", plain_metrics=True), pages(parts), None)
    await served.open()
    try:
        async with aiohttp.request("GET", f"http://127.0.0.1:{served.port}/metrics") as answer:
            text = await answer.text()
    finally:
        await served.close()

    assert 'gangline_gpu_healthy{gpu="1",node="a",uuid="GPU-1"} 0.0' in text and "process_cpu_seconds" in text
