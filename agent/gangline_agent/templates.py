"""The report of a simulated node: a preset or a file, adapted to one node.

A file is YAML or JSON with either ``hardware``, the name of a preset, or ``status``, that of a GpuNodeStatus (so what
`kubectl get gns NODE -o yaml` prints will do), and optionally ``unhealthy``: node (shell wildcards may stand in it) to
device id to the reason.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec
import yaml

from gangline.clock import rfc3339
from gangline.errors import ConfigError
from gangline.model import PodCondition
from gangline.wire.custom_resources import Fabric, GpuDevice, GpuNodeStatusStatus
from gangline_agent import hardware, inventory, labels
from gangline_agent.readings import Gpu, MigInstance, Reading

log = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between two looks at the file."""

Unhealthy = Mapping[str, Mapping[int, str]]


class _File(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """See the module; the last four fields allow a whole GpuNodeStatus in the file."""

    hardware: str | None = None
    status: GpuNodeStatusStatus | None = None
    unhealthy: dict[str, dict[int, str]] = {}
    api_version: str = ""
    kind: str = ""
    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}


class Template(msgspec.Struct, frozen=True):
    """The common values of all nodes, and the differences."""

    status: GpuNodeStatusStatus
    labels: dict[str, str]
    unhealthy: Unhealthy = {}
    reading: Reading = Reading()

    def status_of(self, node: str, clique: str, now: float) -> GpuNodeStatusStatus:
        """The status of a node that is in an NVLink clique, if one is given, at ``now`` (seconds since the epoch)."""
        problems = self._problems_of(node)
        condition = PodCondition(type=inventory.NVML_AVAILABLE, status="True", reason="Simulated")
        fabric = self.status.fabric or Fabric()
        return msgspec.structs.replace(
            self.status,
            devices=[_device(device, node, problems.get(device.id, "")) for device in self.status.devices],
            fabric=msgspec.structs.replace(fabric, clique=clique or fabric.clique),
            heartbeat_time=rfc3339(now),
            conditions=[condition],
        )

    def reading_of(self, node: str, clique: str) -> Reading:
        """The reading of a node that is in an NVLink clique, if one is given."""
        problems = self._problems_of(node)
        gpus = tuple(
            dataclasses.replace(
                gpu,
                uuid=_uuid("GPU", node, gpu.id),
                clique=clique or gpu.clique,
                problems=(problems[gpu.id],) if gpu.id in problems else gpu.problems,
                mig=tuple(
                    dataclasses.replace(instance, uuid=_uuid("MIG", node, gpu.id, number))
                    for number, instance in enumerate(gpu.mig)
                ),
            )
            for gpu in self.reading.gpus
        )
        return dataclasses.replace(self.reading, gpus=gpus)

    def _problems_of(self, node: str) -> dict[int, str]:
        """The unhealthy devices of a node."""
        return {
            id_: reason
            for pattern, devices in self.unhealthy.items()
            if fnmatchcase(node, pattern)
            for id_, reason in devices.items()
        }


def read(what: str) -> Template:
    """The template for the name of a preset or the path of a file. ConfigError for anything else."""
    if what in hardware.PRESETS:
        return _of_preset(what, {})
    path = Path(what)
    if not path.is_file():
        raise ConfigError(what, "", f"is neither a file nor one of {', '.join(hardware.PRESETS)}")
    try:
        file = msgspec.convert(yaml.safe_load(path.read_bytes()), _File, strict=False)
    except RecursionError as error:
        raise ConfigError(what, "", "nested too deeply") from error
    except (yaml.YAMLError, msgspec.ValidationError, ValueError, OSError) as error:
        raise ConfigError(what, "", " ".join(str(error).split())) from error
    if (file.hardware is None) == (file.status is None):
        raise ConfigError(what, "", "needs either hardware or status")
    if file.status is not None:
        return _of_status(what, file.status, file.unhealthy)
    if file.hardware not in hardware.PRESETS:
        raise ConfigError(what, "hardware", f"must be one of {', '.join(hardware.PRESETS)}, got {file.hardware!r}")
    return _of_preset(file.hardware, file.unhealthy)


class Follower:
    """Reads a changed file again and passes the template on; an invalid file is ignored."""

    def __init__(self, what: str, use: Callable[[Template], None]) -> None:
        self._what = what
        self._use = use
        self._seen = _modified(what)

    async def run(self) -> None:
        """Looks at the file until cancelled."""
        while self._seen is not None:
            await asyncio.sleep(LOOK)
            self.look()

    def look(self) -> bool:
        """Reads the file if it has changed; True if there was a new template."""
        now = _modified(self._what)
        if now is None or now == self._seen:
            return False
        self._seen = now
        try:
            template = read(self._what)
        except ConfigError as error:
            log.error("the old simulation stays: %s", error)
            return False
        log.info("simulating what %s says now", self._what)
        self._use(template)
        return True


def _modified(what: str) -> int | None:
    """When a file was changed last, in nanoseconds; None if there is none."""
    try:
        return Path(what).stat().st_mtime_ns
    except OSError:
        return None


def _of_preset(name: str, unhealthy: Unhealthy) -> Template:
    reading = hardware.PRESETS[name]()
    status = inventory.status(reading, hardware.fabric_of(name), 0.0)
    return Template(status, labels.labels_of(reading), unhealthy, reading)


def _of_status(file: str, status: GpuNodeStatusStatus, unhealthy: Unhealthy) -> Template:
    ids = [device.id for device in status.devices]
    if len(ids) != len(set(ids)):
        raise ConfigError(file, "status.devices", "two devices have the same id")
    gpus = tuple(
        Gpu(
            id=each.id,
            product=each.model,
            memory_mib=each.memory_mi_b,
            numa_node=each.numa_node,
            mig_capable=bool(each.mig_devices),
            mig=tuple(MigInstance(mig.uuid, mig.profile, mig.memory_mi_b) for mig in each.mig_devices),
            clique=status.fabric.clique if status.fabric is not None else "",
            problems=(each.reason,) if each.reason else (),
        )
        for each in status.devices
    )
    reading = Reading(gpus=gpus, driver=status.driver_version)
    return Template(msgspec.structs.replace(status, total=len(ids)), labels.labels_of(reading), unhealthy, reading)


def _device(device: GpuDevice, node: str, problem: str) -> GpuDevice:
    """A device of a node, with unique and stable UUIDs for the device and its MIG instances."""
    made = msgspec.structs.replace(
        device,
        uuid=_uuid("GPU", node, device.id),
        in_use_by=[],
        mig_devices=[
            msgspec.structs.replace(instance, uuid=_uuid("MIG", node, device.id, number))
            for number, instance in enumerate(device.mig_devices)
        ],
    )
    if problem:
        made.health, made.reason, made.bandwidth_gbps = "Unhealthy", problem, 0
    return made


def _uuid(kind: str, node: str, *place: int) -> str:
    return f"{kind}-{uuid5(NAMESPACE_URL, '/'.join((node, *map(str, place))))}"
