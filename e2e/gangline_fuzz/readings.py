"""What NVML says to the agent: whatever it is, there is a status that fits the CRD, or NVML counts as unavailable."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pynvml
from hypothesis import strategies as st

from gangline.wire.custom_resources import Fabric, GpuNodeStatusStatus
from gangline_agent import inventory, labels
from gangline_agent.nvml import Nvml
from gangline_agent.readings import Reading, Unavailable
from gangline_fuzz.budget import measured
from gangline_fuzz.inputs import Readings
from gangline_fuzz.oracle import Failed, Found, Kind

NOWHERE = Path("/nonexistent")
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_INT32 = 2**31 - 1

ERRORS = (*(value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")), 12345)
NUMBERS = (0, 1, 2, 7, 64, 255, 2**16, 2**31 - 1, 2**32 - 1, 2**64 - 1)
TEXTS = (
    "",
    " ",
    "GPU-0",
    "x" * 96,
    "\u0000",
    "ü",
    "NVIDIA H100 80GB HBM3",
    "MIG 1g.10gb",
    "MIG ",
    "a b\n",
    "00000000:01:00.0",
    ":",
    "\ufffd",
)

_USUAL: dict[str, Callable[..., Any]] = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlSystemGetDriverVersion": lambda: "570.172.08",
    "nvmlSystemGetCudaDriverVersion": lambda: 12080,
    "nvmlDeviceGetCount": lambda: 2,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
    "nvmlDeviceGetName": lambda handle: "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetMemoryInfo": lambda handle: 2**36,
    "nvmlDeviceGetPciInfo": lambda handle: f"00000000:0{handle}:00.0",
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 5,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda handle: 16,
    "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
    "nvmlDeviceGetTopologyCommonAncestor": lambda one, other: pynvml.NVML_TOPOLOGY_SYSTEM,
    "nvmlDeviceGetNvLinkState": lambda handle, link: 1,
    "nvmlDeviceGetNvLinkVersion": lambda handle, link: pynvml.NVML_NVLINK_VERSION_4_0,
    "nvmlDeviceGetNvLinkRemoteDeviceType": lambda handle, link: pynvml.NVML_NVLINK_DEVICE_TYPE_GPU,
    "nvmlDeviceGetNvLinkRemotePciInfo": lambda handle, link: f"00000000:0{1 - int(handle)}:00.0",
    "nvmlDeviceGetMigMode": lambda handle: [1, 1],
    "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 2,
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda handle, index: index,
    "nvmlDeviceGetTotalEccErrors": lambda handle, kind, counter: 0,
    "nvmlDeviceGetRetiredPagesPendingStatus": lambda handle: 0,
    "nvmlDeviceGetRemappedRows": lambda handle: (0, 0, 0, 0),
    "nvmlDeviceGetGpuFabricInfoV": lambda handle, info: 0,
    "nvmlDeviceGetGpuFabricInfo": lambda handle, info: 0,
    "nvmlEventSetCreate": lambda: "events",
    "nvmlEventSetFree": lambda events: None,
    "nvmlDeviceGetSupportedEventTypes": lambda handle: 0,
    "nvmlDeviceRegisterEvents": lambda handle, kinds, events: None,
}
"""The functions that the agent calls, and what two healthy GPUs answer."""
_TEXT = {
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetNvLinkRemotePciInfo",
    "nvmlSystemGetDriverVersion",
}
_LISTS = {"nvmlDeviceGetMigMode": 2, "nvmlDeviceGetCudaComputeCapability": 2, "nvmlDeviceGetRemappedRows": 4}
_FEW = {"nvmlDeviceGetCount", "nvmlDeviceGetMaxMigDeviceCount"}


@st.composite
def readings(draw: st.DrawFn) -> Readings:
    """Some functions answer oddly: with an error of NVML, with a number or text, or with one that is not UTF-8."""
    names = draw(st.lists(st.sampled_from(sorted(_USUAL)), min_size=1, max_size=6, unique=True))
    return Readings({name: draw(_answers(name)) for name in names})


def _answers(name: str) -> st.SearchStrategy[Any]:
    error = st.builds(lambda code: {"error": code}, st.sampled_from(ERRORS))
    if name in _TEXT:
        return error | st.sampled_from(TEXTS) | st.just({"garbled": True})
    numbers = st.sampled_from(NUMBERS[:5] if name in _FEW else NUMBERS)
    if name in _LISTS:
        return error | st.lists(numbers, min_size=_LISTS[name], max_size=_LISTS[name])
    return error | numbers


class OddNvml:
    """The functions of pynvml; what is not among the answers is as usual, what is no function is pynvml's own."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        if name not in _USUAL:
            return getattr(pynvml, name)

        def call(*args: Any) -> Any:
            answer = self._answers.get(name, _MISSING)
            if answer is _MISSING:
                return _shaped(name, _USUAL[name](*args))
            if isinstance(answer, dict) and "error" in answer:
                raise pynvml.NVMLError(answer["error"])
            if isinstance(answer, dict):
                return b"\xff".decode()
            return _shaped(name, answer)

        return call


_MISSING = object()


def _shaped(name: str, answer: Any) -> Any:
    """The answer as the struct that pynvml gives."""
    if name == "nvmlDeviceGetMemoryInfo":
        return pynvml.c_nvmlMemory_t(total=answer)
    if name in ("nvmlDeviceGetPciInfo", "nvmlDeviceGetNvLinkRemotePciInfo"):
        return pynvml.nvmlPciInfo_t(busId=answer.encode()[:31])
    if name == "nvmlDeviceGetCudaComputeCapability":
        return tuple(answer)
    return answer


def play(what: Readings) -> None:
    """Raises Failed, or whatever the agent raises."""
    with measured() as spent:
        status, node_labels = _read(what)
    if spent.seconds > 1.0 or spent.mib > 100.0:
        raise Failed(Found(Kind.CPU, 0, f"a reading took {spent.seconds:.1f} s and {spent.mib:.0f} MiB", "agent"))
    if msgspec.json.decode(msgspec.json.encode(status), type=GpuNodeStatusStatus) != status:
        raise Failed(Found(Kind.ANSWER, 0, "the status is another one when it is read again", "agent"))
    for device in status.devices:
        numbers = (device.memory_mi_b, device.bandwidth_gbps, *(link.gbps for link in device.links))
        if any(not 0 <= number <= _INT32 for number in numbers):
            raise Failed(
                Found(Kind.ANSWER, 0, f"device {device.id}: {numbers} are not all numbers of 31 bits", "agent")
            )
    for key, value in node_labels.items():
        if not _LABEL.fullmatch(value):
            raise Failed(Found(Kind.ANSWER, 0, f"label {key}: {value!r} is not the value of a label", "agent"))


def _read(what: Readings) -> tuple[GpuNodeStatusStatus, dict[str, str]]:
    session = Nvml(OddNvml(what.answers), NOWHERE)
    read: Reading | Unavailable
    try:
        read = session.read()
    except Unavailable as error:
        read = error
    finally:
        session.close()
    return inventory.status(read, Fabric(), 0.0), labels.labels_of(read if isinstance(read, Reading) else Reading())
