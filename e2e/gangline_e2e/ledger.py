"""Follow pods and leases as they change, and note states that are over before the end of a test."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable

from gangline_e2e.api import Api
from gangline_e2e.devices import LEASES, Device, devices_of, locked
from gangline_e2e.workloads import Manifest, is_bound


class PodLedger:
    """Who has which device, in the order in which the API server says so.

    A device that two pods have at the same time is noted in ``doubles`` if ``has_whole`` says of one of them that it
    has the device for itself. Changes while the watch is broken are not seen, only their result.
    """

    def __init__(self, api: Api, has_whole: Callable[[Manifest], bool] = lambda pod: True) -> None:
        self.pods: dict[str, Manifest] = {}
        """The pods by UID."""
        self.holders: dict[Device, dict[str, Manifest]] = defaultdict(dict)
        self.ever_bound: set[str] = set()
        self.doubles: list[str] = []
        self.left: dict[str, float] = {}
        """When each pod was gone, by UID, on the monotonic clock."""
        self._api = api
        self._has_whole = has_whole
        self._bound: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def follow(self) -> None:
        """Follow the pods of the client's namespace until cancelled."""
        async for event, pod in self._api.watch(self._api.pods):
            if event == "RESTART":
                self.pods.clear()
                self.holders.clear()
            elif event == "DELETED":
                self._remove(pod)
            else:
                self._upsert(pod)

    async def until_bound(self, uid: str) -> None:
        """Wait until a pod has a node."""
        await self._bound[uid].wait()

    def _upsert(self, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        self.pods[uid] = pod
        if not is_bound(pod):
            return
        for device in devices_of(pod):
            there = self.holders[device]
            is_new = uid not in there
            there[uid] = pod
            if is_new and len(there) > 1 and any(map(self._has_whole, there.values())):
                names = ", ".join(each["metadata"]["name"] for each in there.values())
                self.doubles.append(f"GPU {device[1]} of node {device[0]}: {names}")
        self.ever_bound.add(uid)
        self._bound[uid].set()

    def _remove(self, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        self.left[uid] = time.monotonic()
        self.pods.pop(uid, None)
        self._bound.pop(uid, None)
        for device in devices_of(pod):
            self.holders[device].pop(uid, None)
            if not self.holders[device]:
                del self.holders[device]


class LeaseLedger:
    """Follows leases, and notes when the lock of a device ended."""

    def __init__(self, api: Api) -> None:
        self.freed: dict[tuple[Device, str], float] = {}
        """When the lock of a device for a pod, given by UID, was gone, on the monotonic clock."""
        self.holders: dict[str, dict[Device, set[str]]] = {}
        """By the name of the lease."""
        self._api = api

    async def follow(self) -> None:
        """Follow the leases of the client's namespace until cancelled."""
        async for event, lease in self._api.watch(LEASES.format(self._api.namespace)):
            if event == "RESTART":
                continue
            name = lease["metadata"]["name"]
            before, after = self.holders.get(name, {}), {} if event == "DELETED" else locked([lease])
            for device, uids in before.items():
                for uid in uids - after.get(device, set()):
                    self.freed[device, uid] = time.monotonic()
            self.holders[name] = after
