"""Calls NVML, through pynvml or a replacement, and turns its answers into readings.

Rules
- A value that a GPU or driver does not support is left out. Any other error of one GPU makes this GPU unhealthy, with
  the values of its last reading. An error of NVML as a whole is Unavailable, and the next reading starts a new session.
- Bytes that are no text, and errors that are not of NVML but of its Python binding, make a GPU unhealthy if they come
  instead of its name, its memory or its place; instead of other values they count as missing.
- The result of an event of a GPU holds until the session ends, because a GPU does not report that it was reset.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from gangline.errors import ConfigError
from gangline.failures import described
from gangline_agent import fabric, inventory, nvswitch, xids
from gangline_agent.readings import SWITCH, Distance, Gpu, MigInstance, NvLink, Reading, Unavailable

log = logging.getLogger(__name__)

GENERATIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""NVML's number for an NVLink version (NVML_NVLINK_VERSION_4_0 is 6) to the generation."""
NEWEST = max(inventory.NVLINK_GBPS)
MIB = 1 << 20
NO_INSTANCES = "MIG mode is on and there are no instances, so nothing can run on the GPU"
T = TypeVar("T")


def load() -> Any:
    """The module pynvml. ConfigError where it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ModuleNotFoundError as error:
        raise ConfigError("", "nvidia-ml-py", "is not installed; install gangline[agent]") from error


class Nvml:
    """One node's NVML; ``api`` has the functions of pynvml, ``root`` is where the node's /sys stands.

    Its methods block, so they belong into a thread.
    """

    def __init__(self, api: Any, root: Path) -> None:
        self._api = api
        self._root = root
        self._is_open = False
        self._events: Any = None
        self._known: dict[int, Gpu] = {}
        self._incidents: dict[str, tuple[str, ...]] = {}
        self._said: set[str] = set()
        self._left_out = {
            api.NVML_ERROR_NOT_SUPPORTED,
            api.NVML_ERROR_FUNCTION_NOT_FOUND,
            api.NVML_ERROR_NO_PERMISSION,
            api.NVML_ERROR_INVALID_ARGUMENT,
            api.NVML_ERROR_NOT_FOUND,
            api.NVML_ERROR_NO_DATA,
            api.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        }
        self._fatal = {
            api.NVML_ERROR_UNINITIALIZED: "Uninitialized",
            api.NVML_ERROR_DRIVER_NOT_LOADED: "DriverNotLoaded",
            api.NVML_ERROR_LIBRARY_NOT_FOUND: "LibraryNotFound",
            api.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "DriverMismatch",
        }
        self._distances: dict[int, Distance] = {
            api.NVML_TOPOLOGY_INTERNAL: "PIX",
            api.NVML_TOPOLOGY_SINGLE: "PIX",
            api.NVML_TOPOLOGY_MULTIPLE: "PXB",
            api.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
            api.NVML_TOPOLOGY_NODE: "NODE",
            api.NVML_TOPOLOGY_SYSTEM: "SYS",
        }

    @property
    def watching(self) -> bool:
        """Whether `wait` can be used: at least one GPU sends events."""
        return self._events is not None

    def read(self) -> Reading:
        """Everything about all GPUs. Raises Unavailable."""
        api = self._api
        try:
            self._open()
            gpus = nvswitch.judged([self._gpu(index) for index in range(api.nvmlDeviceGetCount())])
            if self._events is None:
                self._watch(gpus)
            cuda: int = self._told(0, api.nvmlSystemGetCudaDriverVersion)
            return Reading(
                gpus=gpus,
                distances=self._all_distances(gpus),
                driver=self._told("", api.nvmlSystemGetDriverVersion),
                cuda=(cuda // 1000, cuda % 1000 // 10),
                machine=fabric.machine(self._root),
            )
        except api.NVMLError as error:
            self.close()
            raise Unavailable(self._fatal.get(error.value, "NVMLError"), str(error)) from error
        except Exception as error:
            self.close()
            raise Unavailable("NVMLError", described(error)) from error

    def wait(self, seconds: float) -> bool:
        """Wait for an event that may have changed the health of a GPU; False if there was none in time."""
        api = self._api
        try:
            event = api.nvmlEventSetWait_v2(self._events, int(seconds * 1000))
        except Exception as error:
            if getattr(error, "value", None) == api.NVML_ERROR_TIMEOUT:
                return False
            log.warning("waiting for NVML events: %s", described(error))
            self._unwatch()  # the next reading watches what is left
            return True
        problem = self._problem(event)
        if problem is None:
            return False
        self._remember(event.device, problem)
        return True

    def close(self) -> None:
        """End the session, if there is one."""
        self._unwatch()
        if self._is_open:
            self._is_open = False
            self._incidents.clear()
            self._quietly(self._api.nvmlShutdown)

    # The session

    def _open(self) -> None:
        if not self._is_open:
            self._api.nvmlInit()
            self._is_open = True

    def _watch(self, gpus: Sequence[Gpu]) -> None:
        """Ask for events of the GPUs that can send them."""
        api = self._api
        wanted = (
            api.nvmlEventTypeXidCriticalError
            | api.nvmlEventTypeDoubleBitEccError
            | api.nvmlEventTypeFatalPoisonError
            | api.nvmlEventTypeGpuUnavailableError
        )
        events, watched = self._told(None, api.nvmlEventSetCreate), False
        if events is None:
            return  # the readings go on; the next one tries again
        for gpu in gpus:
            try:
                handle = api.nvmlDeviceGetHandleByIndex(gpu.id)
                kinds = api.nvmlDeviceGetSupportedEventTypes(handle) & wanted
                if kinds:
                    api.nvmlDeviceRegisterEvents(handle, kinds, events)
                    watched = True
            except Exception as error:
                self._say_once(f"GPU {gpu.id} sends no events: {error}")
        if watched:
            self._events = events
        else:
            self._quietly(api.nvmlEventSetFree, events)

    def _unwatch(self) -> None:
        if self._events is not None:
            events, self._events = self._events, None
            self._quietly(self._api.nvmlEventSetFree, events)

    def _problem(self, event: Any) -> str | None:
        api = self._api
        match event.eventType:
            case api.nvmlEventTypeXidCriticalError:
                return xids.problem(event.eventData)
            case api.nvmlEventTypeDoubleBitEccError:
                return "double-bit ECC error"
            case api.nvmlEventTypeFatalPoisonError:
                return "fatal memory poison"
            case api.nvmlEventTypeGpuUnavailableError:
                return "GPU is unavailable"
        return None

    def _remember(self, device: Any, problem: str) -> None:
        try:
            uuid: str = self._api.nvmlDeviceGetUUID(device)
        except Exception as error:
            log.warning("an event of a GPU that does not answer (%s): %s", problem, error)
            return  # the reading that follows finds it
        log.warning("GPU %s: %s", uuid, problem)
        before = self._incidents.get(uuid, ())
        self._incidents[uuid] = before if problem in before else (*before, problem)

    # One GPU

    def _gpu(self, index: int) -> Gpu:
        api = self._api
        try:
            gpu = self._describe(index, api.nvmlDeviceGetHandleByIndex(index))
        except Exception as error:
            if getattr(error, "value", None) in self._fatal:
                raise
            known = self._known.get(index, Gpu(id=index))
            return replace(known, problems=(*self._incidents.get(known.uuid, ()), self._lost(error)))
        self._known[index] = replace(gpu, problems=(), fabric_problem="")
        return gpu

    def _lost(self, error: Exception) -> str:
        if isinstance(error, UnicodeDecodeError):
            return f"NVML says what is no text: {error}"
        if getattr(error, "value", None) == self._api.NVML_ERROR_GPU_IS_LOST:
            return "GPU is lost: it has fallen off the bus"
        return f"NVML cannot read the GPU: {error if isinstance(error, self._api.NVMLError) else described(error)}"

    def _describe(self, index: int, handle: Any) -> Gpu:
        api, ask = self._api, self._ask
        uuid: str = api.nvmlDeviceGetUUID(handle)
        bus_id: str = api.nvmlDeviceGetPciInfo(handle).busId
        mig_mode = ask(None, api.nvmlDeviceGetMigMode, handle)
        cut = mig_mode is not None and mig_mode[0] == api.NVML_DEVICE_MIG_ENABLE
        mig = self._mig(handle) if cut else ()
        clique, has_fabric, fabric_problem = self._fabric(handle)
        nvlinks = self._nvlinks(handle)
        return Gpu(
            id=index,
            uuid=uuid,
            product=api.nvmlDeviceGetName(handle),
            memory_mib=self._memory(handle),
            bus_id=bus_id,
            pcie_root=fabric.pcie_root(self._root, bus_id),
            numa_node=fabric.numa_node(self._root, bus_id),
            pcie_gbps=inventory.pcie_gbps(
                ask(0, api.nvmlDeviceGetMaxPcieLinkGeneration, handle),
                ask(0, api.nvmlDeviceGetMaxPcieLinkWidth, handle),
            ),
            nvlinks=nvlinks,
            mig_capable=mig_mode is not None,
            mig=mig,
            clique=clique,
            on_fabric=has_fabric or any(link.peer == SWITCH for link in nvlinks),
            fabric_problem=fabric_problem,
            compute=ask((0, 0), api.nvmlDeviceGetCudaComputeCapability, handle),
            problems=(
                *self._incidents.get(uuid, ()),
                *self._memory_problems(handle),
                *((fabric_problem,) if fabric_problem else ()),
                *((NO_INSTANCES,) if cut and not mig else ()),
            ),
        )

    def _nvlinks(self, handle: Any) -> tuple[NvLink, ...]:
        api, ask = self._api, self._ask
        found = []
        for link in range(api.NVML_NVLINK_MAX_LINKS):
            if not ask(0, api.nvmlDeviceGetNvLinkState, handle, link):
                continue
            version: int = ask(0, api.nvmlDeviceGetNvLinkVersion, handle, link)
            gbps = inventory.NVLINK_GBPS[GENERATIONS.get(version, NEWEST)]
            kind = ask(api.NVML_NVLINK_DEVICE_TYPE_UNKNOWN, api.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
            if kind == api.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                found.append(NvLink(SWITCH, gbps))
            elif remote := ask(None, api.nvmlDeviceGetNvLinkRemotePciInfo, handle, link):
                found.append(NvLink(remote.busId, gbps))
        return tuple(found)

    def _mig(self, handle: Any) -> tuple[MigInstance, ...]:
        api, ask = self._api, self._ask
        found = []
        for index in range(ask(0, api.nvmlDeviceGetMaxMigDeviceCount, handle)):
            instance = ask(None, api.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            if instance is None:
                continue
            if (described := ask(None, self._mig_instance, instance)) is not None:  # else it is being destroyed
                found.append(described)
        return tuple(found)

    def _mig_instance(self, instance: Any) -> MigInstance:
        api = self._api
        name: str = api.nvmlDeviceGetName(instance)  # "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
        return MigInstance(api.nvmlDeviceGetUUID(instance), name.rpartition("MIG ")[2], self._memory(instance))

    def _memory(self, handle: Any) -> int:
        """The memory of a GPU in MiB; 0 if unknown. Drivers set all bits for an unknown memory."""
        mib: int = self._api.nvmlDeviceGetMemoryInfo(handle).total // MIB
        return mib if mib < 2**31 else 0  # the field of the GpuNodeStatus is an int32

    def _memory_problems(self, handle: Any) -> list[str]:
        """The memory errors of a GPU; a reset of the GPU removes all of them."""
        api, ask = self._api, self._ask
        found = []
        errors: int = ask(
            0, api.nvmlDeviceGetTotalEccErrors, handle, api.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, api.NVML_VOLATILE_ECC
        )
        if errors:
            found.append(f"{errors} uncorrected ECC errors")
        if ask(0, api.nvmlDeviceGetRetiredPagesPendingStatus, handle) == api.NVML_FEATURE_ENABLED:
            found.append("page retirement pending: the GPU needs a reset")
        _, _, pending, failed = ask((0, 0, 0, 0), api.nvmlDeviceGetRemappedRows, handle)
        if pending:
            found.append("row remapping pending: the GPU needs a reset")
        if failed:
            found.append("row remapping failed")
        return found

    def _fabric(self, handle: Any) -> tuple[str, bool, str]:
        """The NVLink clique, or empty, whether NVML knows of a fabric, and what is wrong with the fabric."""
        api = self._api
        info = api.c_nvmlGpuFabricInfo_v2_t()
        if self._ask(None, api.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None:
            info = api.c_nvmlGpuFabricInfo_t()
            if self._ask(None, api.nvmlDeviceGetGpuFabricInfo, handle, ctypes.byref(info)) is None:
                return "", False, ""
        if info.state == api.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
            return "", False, ""
        if info.state != api.NVML_GPU_FABRIC_STATE_COMPLETED:
            return "", True, "NVLink fabric is not ready: the fabric manager has not set up the GPU"
        if info.status != api.NVML_SUCCESS:
            return "", True, f"NVLink fabric could not be set up: {api.NVMLError(info.status)}"
        cluster = UUID(bytes=bytes(info.clusterUuid))
        clique = f"{cluster}.{info.cliqueId}" if cluster.int else ""
        return clique, True, self._fabric_health(getattr(info, "healthMask", 0))

    def _fabric_health(self, mask: int) -> str:
        """Why the fabric is useless for a GPU; "" if it is not. Less bandwidth and a running recovery do not count."""
        api = self._api
        route = mask >> api.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY
        if (
            route & api.NVML_GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_UNHEALTHY
            == api.NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_TRUE
        ):
            return "NVLink fabric has unhealthy routes"
        configuration = mask >> api.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION
        configuration &= api.NVML_GPU_FABRIC_HEALTH_MASK_WIDTH_INCORRECT_CONFIGURATION
        if configuration > api.NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE:
            return f"NVLink fabric is not configured correctly (number {configuration} of NVML)"
        return ""

    # Between GPUs

    def _all_distances(self, gpus: Sequence[Gpu]) -> dict[tuple[int, int], Distance]:
        api = self._api
        handles = [
            (gpu.id, handle)
            for gpu in gpus
            if (handle := self._quietly(api.nvmlDeviceGetHandleByIndex, gpu.id)) is not None
        ]
        found: dict[tuple[int, int], Distance] = {}
        for index, (one, handle) in enumerate(handles):
            for other, peer in handles[index + 1 :]:
                level = self._quietly(api.nvmlDeviceGetTopologyCommonAncestor, handle, peer)
                found[one, other] = self._distances.get(level, "SYS")
        return found

    # Errors

    def _ask(self, default: T, function: Callable[..., Any], *args: Any) -> Any | T:
        """The result of a function, or the default if the GPU or driver does not support it or gives no text."""
        try:
            return function(*args)
        except self._api.NVMLError as error:
            if error.value not in self._left_out:
                raise
            return default
        except Exception as error:
            self._say_of_binding(function, error)
            return default

    def _told(self, default: T, function: Callable[..., Any]) -> Any | T:
        """The result of a function, or the default after an error that says nothing of the GPUs."""
        try:
            return function()
        except self._api.NVMLError as error:
            if error.value in self._fatal:
                raise
            self._say_once(f"{getattr(function, '__name__', function)}: {error}")
            return default
        except Exception as error:
            self._say_of_binding(function, error)
            return default

    def _say_of_binding(self, function: Callable[..., Any], error: Exception) -> None:
        if not isinstance(error, UnicodeDecodeError):
            self._say_once(f"{getattr(function, '__name__', function)}: {described(error)}")

    def _say_once(self, what: str) -> None:
        """Log what every reading comes upon again."""
        if what not in self._said:
            self._said.add(what)
            log.info("%s", what)

    def _quietly(self, function: Callable[..., Any], *args: Any) -> Any:
        """The result of a function; None after any error."""
        try:
            return function(*args)
        except Exception:  # of NVML, or of its binding
            return None
