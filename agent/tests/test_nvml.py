"""What NVML says becomes a reading, and what it refuses becomes a reason."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import NoReturn
from uuid import UUID

import pynvml
import pytest

from gangline_agent import nvml
from gangline_agent.nvml import Nvml
from gangline_agent.readings import SWITCH, MigInstance, NvLink, Unavailable

from .fake_nvml import FakeEvent, FakeFabric, FakeGpu, FakeLink, FakeMig, FakeNvml, hgx

CLUSTER = UUID("5d7a1c3e-0b1f-4c55-9a41-6f0d2d1f0a01")


def problems(session: Nvml) -> list[tuple[str, ...]]:
    return [gpu.problems for gpu in session.read().gpus]


def test_every_name_that_the_agent_uses_exists_in_pynvml() -> None:
    tree = ast.parse(Path(nvml.__file__).read_text())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("api", "self._api")
    }

    assert len(used) > 50
    assert {name for name in used if not hasattr(pynvml, name)} == set()


def test_the_fake_takes_what_pynvml_takes() -> None:
    faked = [name for name in vars(FakeNvml) if name.startswith("nvml")]
    wrong = {
        name
        for name in faked
        if list(inspect.signature(getattr(FakeNvml, name)).parameters)[1:]
        != list(inspect.signature(getattr(pynvml, name)).parameters)
    }

    assert len(faked) > 25
    assert wrong == set()


def test_a_switched_machine_is_read(tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:03:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")

    reading = Nvml(hgx(), tmp_path).read()

    gpu = reading.gpus[2]
    assert len(reading.gpus) == 8
    assert (gpu.id, gpu.uuid, gpu.bus_id, gpu.numa_node) == (2, "GPU-2", "00000000:03:00.0", 1)
    assert (gpu.product, gpu.memory_mib, gpu.compute) == ("NVIDIA H100 80GB HBM3", 81559, (9, 0))
    assert gpu.nvlinks == (NvLink(SWITCH, 50.0),) * 18
    assert gpu.pcie_gbps == 128.0
    assert (reading.driver, reading.cuda) == ("570.172.08", (12, 8))
    assert not any(problems(Nvml(hgx(), tmp_path)))


def test_memory_with_all_bits_set_is_not_known(tmp_path: Path) -> None:
    reading = Nvml(FakeNvml([FakeGpu(0, memory_mib=2**44 - 1)]), tmp_path).read()

    assert reading.gpus[0].memory_mib == 0


def test_links_to_other_gpus_name_them_and_idle_links_do_not_count(tmp_path: Path) -> None:
    to_one = [FakeLink("00000000:02:00.0", version=pynvml.NVML_NVLINK_VERSION_3_0) for _ in range(4)]
    api = FakeNvml([FakeGpu(0, links=[*to_one, FakeLink(active=False)]), FakeGpu(1)])

    reading = Nvml(api, tmp_path).read()

    assert reading.gpus[0].nvlinks == (NvLink("00000000:02:00.0", 50.0),) * 4
    assert reading.gpus[1].nvlinks == ()


@pytest.mark.parametrize(
    ("version", "gbps"),
    [
        pytest.param(pynvml.NVML_NVLINK_VERSION_1_0, 40.0, id="P100"),
        pytest.param(pynvml.NVML_NVLINK_VERSION_2_0, 50.0, id="V100"),
        pytest.param(pynvml.NVML_NVLINK_VERSION_3_0, 50.0, id="A100"),
        pytest.param(pynvml.NVML_NVLINK_VERSION_4_0, 50.0, id="H100"),
        pytest.param(pynvml.NVML_NVLINK_VERSION_5_0, 100.0, id="B200"),
    ],
)
def test_each_generation_has_its_speed(tmp_path: Path, version: int, gbps: float) -> None:
    api = FakeNvml([FakeGpu(0, links=[FakeLink(version=version)])])

    assert Nvml(api, tmp_path).read().gpus[0].nvlinks == (NvLink(SWITCH, gbps),)


def test_the_way_over_pcie_is_known_for_each_pair(tmp_path: Path) -> None:
    api = FakeNvml([FakeGpu(index) for index in range(7)])
    levels = ("INTERNAL", "SINGLE", "MULTIPLE", "HOSTBRIDGE", "NODE", "SYSTEM")
    api.levels = {
        frozenset({0, peer}): getattr(pynvml, f"NVML_TOPOLOGY_{level}") for peer, level in enumerate(levels, start=1)
    }

    distances = Nvml(api, tmp_path).read().distances

    assert [distances[0, peer] for peer in range(1, 7)] == ["PIX", "PIX", "PXB", "PHB", "NODE", "SYS"]


def test_mig_instances_are_listed(tmp_path: Path) -> None:
    instance = FakeMig("MIG-1", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9728)
    api = FakeNvml([FakeGpu(0, mig=[instance, None, None]), FakeGpu(1)])

    first, second = Nvml(api, tmp_path).read().gpus

    assert first.mig == (MigInstance("MIG-1", "1g.10gb", 9728),)
    assert second.mig == ()
    assert second.mig_capable


def test_an_instance_that_is_destroyed_while_it_is_read_is_left_out(tmp_path: Path) -> None:
    class Destroying(FakeNvml):
        def nvmlDeviceGetName(self, handle: FakeGpu | FakeMig) -> str:
            if isinstance(handle, FakeMig) and handle.uuid == "MIG-2":
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
            return super().nvmlDeviceGetName(handle)

    name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    api = Destroying([FakeGpu(0, mig=[FakeMig("MIG-2", name, 9728), FakeMig("MIG-1", name, 9728)])])

    (gpu,) = Nvml(api, tmp_path).read().gpus

    assert (gpu.mig, gpu.problems) == ((MigInstance("MIG-1", "1g.10gb", 9728),), ())


@pytest.mark.parametrize(
    "function", ["nvmlEventSetCreate", "nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion"]
)
def test_an_error_that_says_nothing_of_the_gpus_hides_none_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, function: str
) -> None:
    def fails() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

    api = hgx(2)
    setattr(api, function, fails)
    session = Nvml(api, tmp_path)

    with caplog.at_level("INFO"):
        read = [len(session.read().gpus) for _ in range(3)]

    assert read == [2, 2, 2]
    assert len(caplog.messages) == 1


def test_the_fabric_gives_the_clique(tmp_path: Path) -> None:
    api = FakeNvml([FakeGpu(0, fabric=FakeFabric(CLUSTER.bytes, 7)), FakeGpu(1, fabric=FakeFabric(bytes(16), 0))])

    in_a_rack, alone = Nvml(api, tmp_path).read().gpus

    assert in_a_rack.clique == f"{CLUSTER}.7"
    assert alone.clique == ""
    assert in_a_rack.problems == alone.problems == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"ecc": 2}, "2 uncorrected ECC errors", id="ECC"),
        pytest.param(
            {"mig": [None, None]},
            "MIG mode is on and there are no instances, so nothing can run on the GPU",
            id="MIG without instances",
        ),
        pytest.param({"retiring": True}, "page retirement pending: the GPU needs a reset", id="pages"),
        pytest.param({"remapped": (0, 1, 1, 0)}, "row remapping pending: the GPU needs a reset", id="rows"),
        pytest.param({"remapped": (0, 9, 0, 1)}, "row remapping failed", id="no rows left"),
        pytest.param(
            {"fabric": FakeFabric(CLUSTER.bytes, 1, state=pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS)},
            "NVLink fabric is not ready: the fabric manager has not set up the GPU",
            id="fabric in progress",
        ),
        pytest.param(
            {"fabric": FakeFabric(CLUSTER.bytes, 1, status=pynvml.NVML_ERROR_UNKNOWN)},
            "NVLink fabric could not be set up: Unknown Error",
            id="fabric failed",
        ),
        pytest.param(
            {"error": pynvml.NVML_ERROR_GPU_IS_LOST}, "GPU is lost: it has fallen off the bus", id="off the bus"
        ),
        pytest.param(
            {"error": pynvml.NVML_ERROR_RESET_REQUIRED}, "NVML cannot read the GPU: GPU requires restart", id="reset"
        ),
    ],
)
def test_a_sick_gpu_says_why_and_the_others_stay_well(tmp_path: Path, change: dict[str, object], says: str) -> None:
    api = hgx(2)
    for name, value in change.items():
        setattr(api.gpus[1], name, value)

    assert problems(Nvml(api, tmp_path)) == [(), (says,)]


def test_a_gpu_that_falls_off_the_bus_keeps_what_was_known_of_it_and_may_come_back(tmp_path: Path) -> None:
    api = hgx(2)
    session = Nvml(api, tmp_path)
    before = session.read()
    api.gpus[1].error = pynvml.NVML_ERROR_GPU_IS_LOST

    lost = session.read().gpus[1]
    api.gpus[1].error = 0
    after = session.read()

    assert lost.problems == ("GPU is lost: it has fallen off the bus",)
    assert (lost.uuid, lost.nvlinks) == (before.gpus[1].uuid, before.gpus[1].nvlinks)
    assert after == before


def test_what_a_gpu_does_not_support_is_left_out(tmp_path: Path) -> None:
    api = FakeNvml([FakeGpu(0, remapped=None)])

    assert problems(Nvml(api, tmp_path)) == [()]


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        pytest.param(
            pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "LibraryNotFound", "NVML Shared Library Not Found", id="library"
        ),
        pytest.param(pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "DriverNotLoaded", "Driver Not Loaded", id="driver"),
        pytest.param(
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            "DriverMismatch",
            "RM has detected an NVML/RM version mismatch.",
            id="mismatch",
        ),
        pytest.param(pynvml.NVML_ERROR_UNKNOWN, "NVMLError", "Unknown Error", id="other"),
    ],
)
def test_nvml_that_fails_is_unavailable_until_it_works_again(
    tmp_path: Path, error: int, reason: str, message: str
) -> None:
    api = hgx(1)
    session = Nvml(api, tmp_path)
    session.read()
    api.init_error = error

    with pytest.raises(Unavailable) as raised:
        session.read()
    api.init_error = 0

    assert (raised.value.reason, raised.value.message) == (reason, message)
    assert api.sessions == 0
    assert len(session.read().gpus) == 1


def test_a_critical_xid_makes_a_gpu_unhealthy_for_the_session(tmp_path: Path) -> None:
    api = hgx(2)
    session = Nvml(api, tmp_path)
    session.read()
    api.events.put(FakeEvent(api.gpus[0], pynvml.nvmlEventTypeXidCriticalError, 79))
    api.events.put(FakeEvent(api.gpus[0], pynvml.nvmlEventTypeDoubleBitEccError))
    api.events.put(FakeEvent(api.gpus[0], pynvml.nvmlEventTypeXidCriticalError, 79))

    news = [session.wait(1.0) for _ in range(3)]

    assert news == [True, True, True]
    assert problems(session) == [("XID 79: GPU has fallen off the bus", "double-bit ECC error"), ()]
    session.close()
    assert problems(session) == [(), ()]


@pytest.mark.parametrize("xid", [13, 31, 43, 45])
def test_an_xid_of_an_application_is_passed_over(tmp_path: Path, xid: int) -> None:
    api = hgx(1)
    session = Nvml(api, tmp_path)
    session.read()
    api.events.put(FakeEvent(api.gpus[0], pynvml.nvmlEventTypeXidCriticalError, xid))

    assert not session.wait(1.0)
    assert problems(session) == [()]


def test_no_event_in_time_is_no_news(tmp_path: Path) -> None:
    session = Nvml(hgx(1), tmp_path)
    session.read()

    assert not session.wait(0.001)
    assert session.watching


def test_a_loss_while_waiting_is_news_and_the_others_are_watched_on(tmp_path: Path) -> None:
    api = hgx(2)
    session = Nvml(api, tmp_path)
    session.read()
    api.gpus[0].error = pynvml.NVML_ERROR_GPU_IS_LOST
    api.events.put(pynvml.NVML_ERROR_GPU_IS_LOST)

    assert session.wait(1.0)
    assert problems(session) == [("GPU is lost: it has fallen off the bus",), ()]
    assert api.watched == ["GPU-1"]


def test_gpus_without_events_are_not_waited_for(tmp_path: Path) -> None:
    session = Nvml(FakeNvml([FakeGpu(0, sends_events=False)]), tmp_path)
    session.read()

    assert not session.watching


class Garbled(FakeNvml):
    """NVML whose texts are not UTF-8: those of its second GPU, and the version of the driver."""

    def nvmlDeviceGetName(self, handle: FakeGpu | FakeMig) -> str:
        return b"\xff".decode() if handle is self.gpus[1] else super().nvmlDeviceGetName(handle)

    def nvmlSystemGetDriverVersion(self) -> str:
        return b"\xff".decode()


def test_a_gpu_whose_name_is_no_text_is_unhealthy_and_the_others_are_not(tmp_path: Path) -> None:
    reading = Nvml(Garbled([FakeGpu(0), FakeGpu(1)]), tmp_path).read()

    assert reading.driver == ""
    assert reading.gpus[0].problems == ()
    [problem] = reading.gpus[1].problems
    assert problem.startswith("NVML says what is no text")


class Failing(FakeNvml):
    """A binding of NVML with a fault: this function raises what pynvml does not know."""

    def __init__(self, gpus: list[FakeGpu], function: str) -> None:
        super().__init__(gpus)
        setattr(self, function, self._fail)

    def _fail(self, *args: object) -> NoReturn:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount"])
def test_a_binding_that_fails_is_unavailable(tmp_path: Path, function: str) -> None:
    with pytest.raises(Unavailable, match=r"OSError: \[Errno 5\] Input/output error") as raised:
        Nvml(Failing([FakeGpu(0)], function), tmp_path).read()

    assert raised.value.reason == "NVMLError"


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo"])
def test_a_gpu_whose_identity_the_binding_cannot_read_is_unhealthy(tmp_path: Path, function: str) -> None:
    [gpu] = Nvml(Failing([FakeGpu(0)], function), tmp_path).read().gpus

    assert gpu.problems == ("NVML cannot read the GPU: OSError: [Errno 5] Input/output error",)


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlDeviceRegisterEvents",
        "nvmlEventSetCreate",
        "nvmlSystemGetCudaDriverVersion",
        "nvmlShutdown",
    ],
)
def test_what_else_the_binding_cannot_read_counts_as_missing(tmp_path: Path, function: str) -> None:
    session = Nvml(Failing([FakeGpu(0), FakeGpu(1)], function), tmp_path)

    assert problems(session) == [(), ()]
    session.close()


def test_a_wait_that_the_binding_fails_is_news(tmp_path: Path) -> None:
    session = Nvml(Failing([FakeGpu(0)], "nvmlEventSetWait_v2"), tmp_path)
    session.read()

    assert session.wait(1.0)
    assert not session.watching
