"""The plugin: lets preemption and recovery suspend workloads instead of evicting their pods, and resumes them.

The pods of a Job that are evicted count as failed unless a pod failure policy says otherwise, and even then the Job
controller creates the next ones late: twice as late after each pod. A Job that is suspended loses its pods without any
of that. So an owner may ask for it with the annotation `gangline.dev/eviction: suspend`. The modules:

- `owning` decides which owners may be suspended: those all of whose pods have to go.
- `authors` says whether somebody else has stopped an owner meanwhile.
- `kueue` says which Workload of Kueue stands for pods, and when Kueue may be asked to stop it.
- `suspending` suspends them; `suspenders` is where other plugins ask for it.
- `resuming` looks every few seconds whether the pods of suspended owners have room (`templates`), and resumes them.
- `record` defines the annotations on a suspended owner; `writing` makes every write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from gangline import Action, EventHint, Handle, PodInfo, Status, hookimpl, on, resources, unschedulable
from gangline_plugins.suspension.owning import SUSPENDABLE, job_of
from gangline_plugins.suspension.record import SUSPENDED_BY, suspended_by
from gangline_plugins.suspension.resuming import Resuming
from gangline_plugins.suspension.suspenders import Suspenders
from gangline_plugins.suspension.suspending import Suspending
from gangline_plugins.suspension.writing import OwnerWriter

_PAUSE = 5.0
"""Seconds between two looks at the owners that are suspended, and from the first suspension to the first look."""
_SUSPENDED = "its owner is suspended, so its controller is about to delete it"


class SuspensionArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of Suspension."""

    resume_seconds: Annotated[float, msgspec.Meta(ge=0)] = 300.0
    """Seconds after which a workload is resumed although there is no room for its pods; they wait in the queue then."""


class Suspension:
    """Suspends workloads of this profile that ask for it, and resumes them."""

    name = "Suspension"
    args_type = SuspensionArgs
    watches = (resources.JOBS, resources.JOB_SETS, resources.Selection(resources.KUEUE_WORKLOADS, is_needed=False))

    def __init__(self, args: SuspensionArgs, handle: Handle) -> None:
        self._handle = handle
        writer = OwnerWriter(handle, args.resume_seconds)
        until = f"when there is room, or after {args.resume_seconds:g} s"
        suspending = Suspending(handle, writer, until)
        suspenders = handle.state.shared(Suspenders)
        self._resuming = Resuming(handle, writer, suspenders, args.resume_seconds)
        self._changed = asyncio.Event()
        self._suspended: dict[str, Any] = {}
        """The owners with a record of any profile, by UID."""
        suspenders.add(handle.profile, suspending)
        handle.state.at_end(lambda: suspenders.remove(handle.profile, suspending))
        for kind in SUSPENDABLE:
            handle.state.store(kind).subscribe(self)
        handle.run(self._work)

    # The owners

    def on_upsert(self, obj: Any) -> None:
        """A Job, JobSet or Workload was added or has changed."""
        if suspended_by(obj):
            self._suspended[obj.metadata.uid] = obj
            self._changed.set()
        else:
            self._suspended.pop(obj.metadata.uid, None)

    def on_remove(self, obj: Any) -> None:
        """A Job, JobSet or Workload was deleted."""
        self._suspended.pop(obj.metadata.uid, None)

    # Hooks

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A Job that is resumed."""
        return (on("jobs", Action.UPDATE),)

    @hookimpl
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Hold the pods of a Job that is being suspended: they would take nodes for a moment, and go."""
        if not self._suspended or pod.is_anew or SUSPENDED_BY not in self._handle.workload(pod):
            return None
        job = job_of(self._handle.state, pod)
        return unschedulable(_SUSPENDED) if job is not None and job.spec.suspend else None

    # In the background

    async def _work(self) -> None:
        while True:
            while self._suspended:
                await asyncio.sleep(_PAUSE)
                await self._resuming.look(list(self._suspended.values()))
            self._changed.clear()
            await self._changed.wait()
