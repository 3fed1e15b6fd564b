"""A stand-in for pynvml: functions answer from described GPUs; constants, structs and errors are pynvml's own."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field
from typing import Any

import pynvml

MIB = 1 << 20


@dataclass
class FakeLink:
    """An NVLink: to another GPU's bus id, or with none to an NVSwitch."""

    bus_id: str | None = None
    version: int = pynvml.NVML_NVLINK_VERSION_4_0
    active: bool = True


@dataclass
class FakeMig:
    """A MIG instance; it is its own handle."""

    uuid: str
    name: str
    memory_mib: int


@dataclass
class FakeFabric:
    """What nvmlDeviceGetGpuFabricInfoV says."""

    cluster: bytes
    clique: int
    state: int = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
    status: int = pynvml.NVML_SUCCESS
    health: int = 0
    """The mask of fields."""


@dataclass
class FakeGpu:
    """A GPU; it is its own handle. ``error`` is what every question about it raises."""

    index: int
    uuid: str = ""
    name: str = "NVIDIA H100 80GB HBM3"
    memory_mib: int = 81559
    links: list[FakeLink] = field(default_factory=list)
    mig: list[FakeMig | None] | None = None
    fabric: FakeFabric | None = None
    ecc: int = 0
    retiring: bool = False
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    sends_events: bool = True
    error: int = 0

    def __post_init__(self) -> None:
        self.uuid = self.uuid or f"GPU-{self.index}"

    @property
    def bus_id(self) -> str:
        return f"00000000:{self.index + 1:02X}:00.0"


@dataclass
class FakeEvent:
    """What nvmlEventSetWait_v2 gives."""

    device: FakeGpu
    eventType: int
    eventData: int = 0


class FakeNvml:
    """The functions of pynvml that the agent calls, over these GPUs; what is not here comes from pynvml."""

    def __init__(self, gpus: list[FakeGpu] | None = None) -> None:
        self.gpus = gpus or []
        self.init_error = 0
        self.sessions = 0
        self.levels: dict[frozenset[int], int] = {}
        self.events: queue.SimpleQueue[FakeEvent | int] = queue.SimpleQueue()
        self.watched: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Constants, structs and errors."""
        if name.startswith("nvml") and callable(getattr(pynvml, name)):
            raise AssertionError(f"{name} is not faked")
        return getattr(pynvml, name)

    # The session

    def nvmlInit(self) -> None:
        self._raise(self.init_error)
        self.sessions += 1

    def nvmlShutdown(self) -> None:
        self.sessions -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.172.08"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 12080

    def nvmlDeviceGetCount(self) -> int:
        self._raise(self.init_error)
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        self._raise(self.gpus[index].error)
        return self.gpus[index]

    # One GPU

    def nvmlDeviceGetUUID(self, handle: FakeGpu | FakeMig) -> str:
        self._answers(handle)
        return handle.uuid

    def nvmlDeviceGetName(self, handle: FakeGpu | FakeMig) -> str:
        return handle.name

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu | FakeMig, version: int | None = None) -> Any:
        return pynvml.c_nvmlMemory_t(total=handle.memory_mib * MIB)

    def nvmlDeviceGetPciInfo(self, handle: FakeGpu) -> Any:
        return pynvml.nvmlPciInfo_t(busId=handle.bus_id.encode())

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: FakeGpu) -> int:
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: FakeGpu) -> int:
        return 16

    def nvmlDeviceGetCudaComputeCapability(self, handle: FakeGpu) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetTopologyCommonAncestor(self, device1: FakeGpu, device2: FakeGpu) -> int:
        return self.levels.get(frozenset({device1.index, device2.index}), pynvml.NVML_TOPOLOGY_SYSTEM)

    # NVLink

    def nvmlDeviceGetNvLinkState(self, device: FakeGpu, link: int) -> int:
        return int(self._link(device, link).active)

    def nvmlDeviceGetNvLinkVersion(self, device: FakeGpu, link: int) -> int:
        return self._link(device, link).version

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: FakeGpu, link: int) -> int:
        switch = self._link(handle, link).bus_id is None
        kind: int = pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH if switch else pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
        return kind

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device: FakeGpu, link: int) -> Any:
        bus_id = self._link(device, link).bus_id or "00000000:FF:00.0"
        return pynvml.nvmlPciInfo_t(busId=bus_id.encode())

    def nvmlDeviceGetGpuFabricInfoV(self, device: FakeGpu, gpuFabricInfo: Any) -> int:
        if device.fabric is None:
            self._raise(pynvml.NVML_ERROR_NOT_SUPPORTED)
        else:
            info = gpuFabricInfo._obj
            info.clusterUuid[:] = device.fabric.cluster
            info.cliqueId, info.state, info.status = device.fabric.clique, device.fabric.state, device.fabric.status
            info.healthMask = device.fabric.health
        return 0

    def nvmlDeviceGetGpuFabricInfo(self, device: FakeGpu, gpuFabricInfo: Any) -> int:
        return self.nvmlDeviceGetGpuFabricInfoV(device, gpuFabricInfo)

    # MIG

    def nvmlDeviceGetMigMode(self, device: FakeGpu) -> list[int]:
        mode = pynvml.NVML_DEVICE_MIG_DISABLE if device.mig is None else pynvml.NVML_DEVICE_MIG_ENABLE
        return [mode, mode]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: FakeGpu) -> int:
        return len(device.mig or [])

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: FakeGpu, index: int) -> FakeMig:
        found = (device.mig or [])[index]
        if found is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return found

    # Health

    def nvmlDeviceGetTotalEccErrors(self, handle: FakeGpu, errorType: int, counterType: int) -> int:
        assert (errorType, counterType) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return handle.ecc

    def nvmlDeviceGetRetiredPagesPendingStatus(self, device: FakeGpu) -> int:
        return int(device.retiring)

    def nvmlDeviceGetRemappedRows(self, device: FakeGpu) -> tuple[int, int, int, int]:
        if device.remapped is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return device.remapped

    # Events

    def nvmlEventSetCreate(self) -> str:
        return "events"

    def nvmlEventSetFree(self, eventSet: str) -> None:
        self.watched.clear()

    def nvmlDeviceGetSupportedEventTypes(self, handle: FakeGpu) -> int:
        kinds: int = pynvml.nvmlEventTypeAll if handle.sends_events else 0
        return kinds

    def nvmlDeviceRegisterEvents(self, handle: FakeGpu, eventTypes: int, eventSet: str) -> None:
        self.watched.append(handle.uuid)

    def nvmlEventSetWait_v2(self, eventSet: str, timeoutms: int) -> FakeEvent:
        try:
            event = self.events.get(timeout=timeoutms / 1000)
        except queue.Empty:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT) from None
        if isinstance(event, int):
            raise pynvml.NVMLError(event)
        return event

    def _link(self, gpu: FakeGpu, link: int) -> FakeLink:
        if link >= len(gpu.links):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return gpu.links[link]

    def _answers(self, handle: FakeGpu | FakeMig) -> None:
        if isinstance(handle, FakeGpu):
            self._raise(handle.error)

    def _raise(self, error: int) -> None:
        if error:
            raise pynvml.NVMLError(error)


def hgx(count: int = 8) -> FakeNvml:
    """H100s with 18 links each, all to NVSwitches."""
    return FakeNvml([FakeGpu(index, links=[FakeLink() for _ in range(18)]) for index in range(count)])
