"""Collects events and conditions about pods, and aggregates them until another module writes them.

Rules:
- Recording an event costs a dictionary access; this module does no I/O.
- An event that happens again before it was written is counted. If it happens again later, it becomes a series.
- A series is written again after SERIES_PAUSE seconds at the earliest, if it has grown meanwhile.
- An object gets at most BURST warnings at once, and one more each PAUSE seconds: an object with a new fault each time
  must not fill the API server. Further warnings count as dropped.
- If too many events wait, the newest are dropped and counted. An event that the API server has put off waits again,
  behind all others: it may be refused for what it is about. Conditions are never dropped: the latest one is written.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from gangline.api.plugin import Clock
from gangline.clock import rfc3339
from gangline.model import Event, EventSeries, ObjectMeta, TypedReference
from gangline.state.pods import PodInfo

MOST_WAITING = 50_000
MOST_PUT_OFF = MOST_WAITING // 2
MOST_REMEMBERED = 10_000
"""Written events that are remembered, so that a repetition becomes a series."""
BURST = 25
"""Different warnings that one object may get at once."""
PAUSE = 30.0
"""Seconds until the object may get one more warning."""
SERIES_PAUSE = 360.0
"""Seconds between two writes of a series; kube-scheduler's recorder waits as long for a repetition."""
MOST_BYTES = 1024
"""Bytes of a note, at most: the API server refuses a longer one."""
MOST_OF_NAME = 200
"""Characters of an object's name that its events' names begin with; the API server takes 253 in all."""


class _Key(msgspec.Struct, frozen=True, gc=False):
    uid: str
    kind: str
    reason: str
    note: str
    action: str


class _Saying(msgspec.Struct, gc=False):
    regarding: TypedReference
    reporter: str
    first: float
    last: float
    count: int = 1
    due: float = 0.0
    """For a series that was written: when it may be written again, on the monotonic clock."""


class Repeated(msgspec.Struct, frozen=True):
    """A written event that has happened again: its series has grown."""

    event: Event


class Condition(msgspec.Struct, frozen=True):
    """PodScheduled=False, for a pod's status."""

    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    nominated_node_name: str | None = None
    """The new value of status.nominatedNodeName; None leaves it unchanged."""


class GroupCondition(msgspec.Struct, frozen=True):
    """Whether a pod group is scheduled, for the status of the object that represents the group."""

    object: TypedReference
    scheduled: bool
    reason: str
    message: str


class NoRecorder:
    """Records nothing; for what-if."""

    def event(self, pod: PodInfo, kind: str, reason: str, note: str, action: str = "Scheduling") -> None:
        """Nothing."""

    def about(self, regarding: TypedReference, reporter: str, kind: str, reason: str, note: str, action: str) -> None:
        """Nothing."""


class EventRecorder:
    """Collects events and conditions."""

    def __init__(self, clock: Clock, instance: str) -> None:
        self._clock = clock
        self._instance = instance
        self._waiting: OrderedDict[_Key, _Saying] = OrderedDict()
        self._written: OrderedDict[_Key, tuple[str, int]] = OrderedDict()
        self._resting: OrderedDict[_Key, _Saying] = OrderedDict()
        """The series that were written less than SERIES_PAUSE ago, with the repetitions since; the next due first."""
        self._put_off: deque[Event | Repeated] = deque()
        """Events that the API server had no time for; they are written when no other event waits."""
        self._warned: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """For each object the warnings that count against BURST, and the time of that number; last warned last."""
        self._conditions: OrderedDict[str, Condition] = OrderedDict()
        self._group_conditions: OrderedDict[str, GroupCondition] = OrderedDict()
        self._in_writing: set[str] = set()
        """Groups of which a condition is being written: the next one waits, so that the latest one is written last."""
        self._number = itertools.count()
        self.dropped = 0
        self.wakers: list[Callable[[], None]] = []
        """Called when something has been recorded."""

    def event(self, pod: PodInfo, kind: str, reason: str, note: str, action: str = "Scheduling") -> None:
        """Record an event about a pod; kind is "Normal" or "Warning"."""
        regarding = TypedReference(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid, api_version="v1")
        self.about(regarding, pod.scheduler_name, kind, reason, note, action)

    def about(self, regarding: TypedReference, reporter: str, kind: str, reason: str, note: str, action: str) -> None:
        """Record an event about any object."""
        key = _Key(regarding.uid or regarding.name, kind, reason, _shortened(note), action)
        now = self._clock.now()
        resting = self._resting.get(key)
        if resting is not None:
            resting.count += 1
            resting.last = now
            return
        self._wake()
        saying = self._waiting.get(key)
        if saying is not None:
            saying.count += 1
            saying.last = now
        elif self._is_full or (kind == "Warning" and not self._may_warn(key.uid, now)):
            self.dropped += 1
        else:
            self._waiting[key] = _Saying(regarding, reporter, now, now)

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) + len(self._put_off) >= MOST_WAITING

    def put_off(self, event: Event | Repeated) -> None:
        """The API server had no time for an event that was handed out: the event is handed out again."""
        if self._is_full or len(self._put_off) >= MOST_PUT_OFF:
            self.dropped += 1
            return
        self._put_off.append(event)
        self._wake()

    def _wake(self) -> None:
        for wake in self.wakers:
            wake()

    def _may_warn(self, uid: str, now: float) -> bool:
        """Whether the object may get one more warning; if so, the warning is counted."""
        before, then = self._warned.pop(uid, (0.0, now))
        number = max(0.0, before - max(0.0, now - then) / PAUSE)
        may = number + 1 <= BURST
        self._warned[uid] = (number + may, now)
        if len(self._warned) > MOST_REMEMBERED:
            self._warned.popitem(last=False)
        return may

    def condition(self, condition: Condition) -> None:
        """Set the pod's condition. A change of the nomination that waits is written with it."""
        self._conditions[condition.uid] = _with_nomination(condition, self._conditions.get(condition.uid))
        self._wake()

    def group_condition(self, condition: GroupCondition) -> None:
        """Set the group's condition."""
        self._group_conditions[_group_key(condition)] = condition
        self._wake()

    def next_group_condition(self) -> GroupCondition | None:
        """The oldest condition of a group that can be written now; `group_written` has to be called in the end."""
        if not self._group_conditions:
            return None
        key = next((key for key in self._group_conditions if key not in self._in_writing), None)
        if key is None:
            return None
        self._in_writing.add(key)
        return self._group_conditions.pop(key)

    def group_written(self, condition: GroupCondition, again: bool = False) -> None:
        """The writing of a condition has ended. With `again` the condition waits again, unless there is a newer one."""
        key = _group_key(condition)
        self._in_writing.discard(key)
        if again:
            self._group_conditions.setdefault(key, condition)
        self._wake()

    def restore(self, condition: Condition) -> None:
        """The condition could not be written: it waits again. If there is a newer one, that one is written, with the
        nomination of this one unless it has its own.
        """
        self._conditions[condition.uid] = _with_nomination(self._conditions.get(condition.uid, condition), condition)
        self._wake()

    def forget(self, uid: str) -> None:
        """The pod is bound or deleted: its condition is not written any more."""
        self._conditions.pop(uid, None)

    @property
    def waiting(self) -> int:
        """The number of events and conditions that have not been handed out."""
        return len(self._waiting) + len(self._put_off) + len(self._conditions) + len(self._group_conditions)

    def next_condition(self) -> Condition | None:
        """The oldest waiting condition, to be written now."""
        return self._conditions.popitem(last=False)[1] if self._conditions else None

    def next_event(self) -> Event | Repeated | None:
        """The oldest waiting event, to be created, or to be counted in a series."""
        if not self._waiting:
            return self._put_off.popleft() if self._put_off else None
        key, saying = self._waiting.popitem(last=False)
        before = self._written.pop(key, None)
        if before is not None:
            name, count = before
            self._remember(key, name, count + saying.count)
            self._rest(key, saying)
            return Repeated(self._event(key, saying, name, count + saying.count))
        prefix = saying.regarding.name[:MOST_OF_NAME].rstrip("-.")
        name = f"{prefix}.{int(saying.first * 1e6):x}{next(self._number):x}"
        self._remember(key, name, saying.count)
        if saying.count > 1:
            self._rest(key, saying)
        return self._event(key, saying, name, saying.count)

    def next_new_events(self, most: int) -> list[Event]:
        """The oldest waiting events, up to the first one that has been written before."""
        found: list[Event] = []
        while len(found) < most and self._is_next_new():
            event = self.next_event()
            assert isinstance(event, Event)
            found.append(event)
        return found

    def _is_next_new(self) -> bool:
        """Whether there is a next event, which is to be created."""
        if self._waiting:
            return next(iter(self._waiting)) not in self._written
        return bool(self._put_off) and isinstance(self._put_off[0], Event)

    def _rest(self, key: _Key, saying: _Saying) -> None:
        """The series is being written: from now on its repetitions are only counted, for SERIES_PAUSE seconds."""
        due = self._clock.monotonic() + SERIES_PAUSE
        self._resting[key] = _Saying(saying.regarding, saying.reporter, saying.last, saying.last, 0, due)
        if len(self._resting) > MOST_REMEMBERED:
            self._go_on(*self._resting.popitem(last=False))

    def go_on_with_series(self) -> None:
        """The series whose pause is over are to be written again, if they have grown. To be called now and then."""
        now = self._clock.monotonic()
        while self._resting and next(iter(self._resting.values())).due <= now:
            self._go_on(*self._resting.popitem(last=False))

    def _go_on(self, key: _Key, saying: _Saying) -> None:
        if saying.count:
            self._waiting[key] = saying
            self._wake()

    def _event(self, key: _Key, saying: _Saying, name: str, count: int) -> Event:
        series = EventSeries(count, rfc3339(saying.last, micros=True)) if count > 1 else None
        return Event(
            metadata=ObjectMeta(name=name, namespace=_namespace(saying.regarding)),
            reason=key.reason,
            note=key.note,
            type=key.kind,
            action=key.action,
            regarding=saying.regarding,
            event_time=rfc3339(saying.first, micros=True),
            reporting_controller=saying.reporter or "gangline",
            reporting_instance=self._instance,
            series=series,
        )

    def _remember(self, key: _Key, name: str, count: int) -> None:
        self._written[key] = (name, count)
        if len(self._written) > MOST_REMEMBERED:
            self._written.popitem(last=False)


class SilentRecorder(EventRecorder):
    """Collects nothing: for a scheduler whose events and conditions nobody reads."""

    def about(self, regarding: TypedReference, reporter: str, kind: str, reason: str, note: str, action: str) -> None:
        """Nothing."""

    def event(self, pod: PodInfo, kind: str, reason: str, note: str, action: str = "Scheduling") -> None:
        """Nothing."""

    def condition(self, condition: Condition) -> None:
        """Nothing."""

    def group_condition(self, condition: GroupCondition) -> None:
        """Nothing."""


def _with_nomination(condition: Condition, before: Condition | None) -> Condition:
    """The condition, with the nomination of the one before if it leaves the nomination unchanged."""
    if before is None or condition.nominated_node_name is not None:
        return condition
    return replace(condition, nominated_node_name=before.nominated_node_name)


def _group_key(condition: GroupCondition) -> str:
    return condition.object.uid or f"{condition.object.namespace}/{condition.object.name}"


def _shortened(note: str) -> str:
    raw = note.encode()
    return note if len(raw) <= MOST_BYTES else raw[: MOST_BYTES - 3].decode(errors="ignore") + "..."


def _namespace(regarding: TypedReference) -> str:
    return regarding.namespace or "default"
