"""Trackers are told of every placement. An exception in one tracker harms neither the columns nor other trackers.

Rules:
- If a tracker raises for a pod, the pod is not placed: the trackers already told are told of its removal.
- Taking a pod off a row, and putting it back, always succeed. A tracker that raises then is *out of step*: its counts
  may be wrong.
- A tracker may look ahead in a block `State.foreseen`: see `Tracker`. A tracker that raises then is out of step, too.
- A tracker that is out of step is cleared, if it has a method `clear`, and told of all pods again before the next
  decision. If that is impossible, the plugins that use the tracker fail each decision, and say why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple, Protocol

from gangline.errors import GanglineError, PluginError
from gangline.failures import Failures, cause_of, name_of, shown
from gangline.model import Node
from gangline.state.pods import PodClass, PodInfo
from gangline.state.scopes import Users


class NodeListener(Protocol):
    """An object that is called when a node gets a row, changes, or loses its row."""

    def node_upserted(self, node: Node, row: int) -> None:
        """The node exists, or has changed; called before pods that waited for the node are placed."""

    def node_removed(self, name: str, row: int) -> None:
        """The node is deleted, and no pod is on its row; another node may get the row."""


class Tracker(Protocol):
    """Follows where pods are: it is called for every placement and every removal, including undone ones.

    If it has a method `concerns(cls)`, that is called once for each pod class, and again after `ask_trackers`, and says
    whether to tell the tracker of these pods. A pod for which `add` raises is not placed. A pod for which `remove`
    raises is removed all the same. If the tracker has a method `clear()`, it is cleared after an exception and told of
    all pods again; if not, the plugins that use it fail from then on.

    If the tracker has the method `add_all(pods, rows)`, it is told in one call of like members of a group that are
    placed at once, instead of by `add` of each. If `add_all` raises, none of the pods is placed. A tracker with `clear`
    is then told of the removal of each pod, and cleared later. A tracker without `clear` is told of no removal, so it
    must have added none of the pods. If `add_all` returns False, the tracker has added none, and is told of each pod
    by `add`.

    If the tracker has the method `counts_alike(known, newer)`, it is asked when a newer record of a pod takes the place
    of a known one of the same class on the same row. True says that the tracker counts both alike, and has the newer
    record now; the tracker is then told nothing. If not, it is told that the known one is removed and the newer added.

    A pod may be removed for good, or only in a transaction: `State.is_lifted` tells. Some consequences of a pod's end
    come later, because others have to act first: for example, its claim gives its devices back. A tracker counts these
    as done while the pod is lifted, and undoes that when the pod is added again. If the tracker has a method
    `foresee(begins)`, the method is called with True where a block `State.foreseen` begins and with False where it
    ends. In between the tracker counts everything as done that will follow from pods that have ended or are ending; the
    method returns whether that makes a difference.
    """

    def add(self, pod: PodInfo, row: int) -> None:
        """The pod is on the row now."""

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is no longer on the row."""


POINT = "Tracker"
_MOST_LEFT_OUT = 16
"""Pods that may be left out, because the tracker raises for them, when it is told of all pods again."""

Tell = Callable[[PodInfo, int], None]
TellAll = Callable[[Sequence[PodInfo], Sequence[int]], object]
Compare = Callable[[PodInfo, PodInfo], bool]


class ToldTrackers(NamedTuple):
    """The trackers that want to be told of the pods of a class."""

    of: int
    """The `version` of the trackers when they were asked."""
    adds: tuple[Tell, ...]
    removes: tuple[Tell, ...]
    adds_all: tuple[TellAll | None, ...]
    """For each tracker its method for many pods, if it has one."""
    alike: tuple[Compare | None, ...]
    """For each tracker its method that compares two records of a pod, if it has one."""

    parts: dict[tuple[bool, ...], tuple[ToldTrackers, ToldTrackers]]
    """See `split`."""

    def split(self, same: tuple[bool, ...]) -> tuple[ToldTrackers, ToldTrackers]:
        """The trackers of which the value is False, and those of which it is True."""
        found = self.parts.get(same)
        if found is None:
            found = self.parts[same] = self._only([not each for each in same]), self._only(same)
        return found

    def _only(self, which: Sequence[bool]) -> ToldTrackers:
        adds, removes = tuple(compress(self.adds, which)), tuple(compress(self.removes, which))
        adds_all, alike = tuple(compress(self.adds_all, which)), tuple(compress(self.alike, which))
        return ToldTrackers(self.of, adds, removes, adds_all, alike, {})


@dataclass(slots=True, eq=False)
class _Tracked:
    tracker: Tracker
    users: Users = field(default_factory=dict)
    foresee: Callable[[bool], object] | None = None
    """Its method that looks ahead, if it has one."""

    @property
    def plugins(self) -> set[str]:
        """The plugins that asked for the tracker while they were built."""
        return set().union(*self.users.values())

    @property
    def name(self) -> str:
        return ", ".join(sorted(self.plugins)) or name_of(self.tracker)


class Trackers:
    """All trackers, in the order in which they are told."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self.version = 0
        self.broken: dict[int, str] = {}
        """The fault of each tracker that is out of step, by the identity of the tracker."""
        self._tracked: dict[int, _Tracked] = {}
        self._hopeless: set[int] = set()

    def __len__(self) -> int:
        return len(self._tracked)

    def __contains__(self, tracker: object) -> bool:
        return id(tracker) in self._tracked

    def add(self, tracker: Tracker, placed: Iterable[PodInfo], users: Users | None = None) -> None:
        """Tell the tracker now of the pods that are placed, and later of every placement and removal."""
        tracked = _Tracked(tracker, {} if users is None else users, getattr(tracker, "foresee", None))
        self._tracked[id(tracker)] = tracked
        self.version += 1
        self._tell(tracked, [pod for pod in placed if self._concerns(tracked, pod.cls)])

    def remove(self, tracker: Tracker) -> None:
        """Stop telling the tracker."""
        del self._tracked[id(tracker)]
        self.version += 1
        self.broken.pop(id(tracker), None)
        self._hopeless.discard(id(tracker))

    def told(self, cls: PodClass) -> ToldTrackers:
        """The trackers that are told of the pods of a class."""
        told: ToldTrackers | None = cls.memo.get(ToldTrackers)
        if told is None or told.of != self.version:
            trackers = [t.tracker for t in self._tracked.values() if self._concerns(t, cls)]
            adds, removes = tuple(each.add for each in trackers), tuple(each.remove for each in trackers)
            adds_all, alike = tuple(map(_add_all, trackers)), tuple(map(_counts_alike, trackers))
            told = cls.memo[ToldTrackers] = ToldTrackers(self.version, adds, removes, adds_all, alike, {})
        return told

    def split(self, told: ToldTrackers, known: PodInfo, newer: PodInfo) -> tuple[ToldTrackers, ToldTrackers]:
        """The trackers that count two records of a pod differently, and those that count both alike."""
        return told.split(tuple([self._are_alike(alike, known, newer) for alike in told.alike]))

    def _are_alike(self, alike: Compare | None, known: PodInfo, newer: PodInfo) -> bool:
        try:
            return alike is not None and bool(alike(known, newer))
        except BaseException as error:  # in doubt the tracker is told of both
            self._failures.raised(self._owner(alike).name, POINT, error)
            return False

    def add_all(self, told: ToldTrackers, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """Tell these trackers of pods of one class that are on rows now. If one raises, none is placed: PluginError."""
        for position, (add, add_all) in enumerate(zip(told.adds, told.adds_all, strict=True)):
            known = 0
            try:
                if add_all is not None:
                    known = len(pods) if _can_be_cleared(add_all) else 0
                    if add_all(pods, rows) is not False:
                        continue
                    known = 0
                for pod, row in zip(pods, rows, strict=True):
                    known += 1
                    add(pod, row)
            except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
                raise self._take_all_back(told, position, pods, rows, known, error) from cause_of(error)

    def take_back(
        self, told: ToldTrackers, failed: Tell, pod: PodInfo, row: int, error: BaseException
    ) -> GanglineError:
        """A tracker raised for a pod: tell this tracker, and the trackers before it, of the pod's removal.

        Returns the exception to raise.
        """
        return self._take_all_back(told, told.adds.index(failed), [pod], [row], 1, error)

    def _take_all_back(
        self,
        told: ToldTrackers,
        position: int,
        pods: Sequence[PodInfo],
        rows: Sequence[int],
        known: int,
        error: BaseException,
    ) -> GanglineError:
        """A tracker raised when it had been told of the first `known` pods: see `take_back`."""
        owner = self._owner(told.adds[position])
        found = self._failures.raised(owner.name, POINT, error)
        for at in range(position, -1, -1):
            remove = told.removes[at]
            for number in reversed(range(known if at == position else len(pods))):
                try:
                    remove(pods[number], rows[number])
                except BaseException as again:
                    self._out_of_step(remove, again)
        if hasattr(owner.tracker, "clear"):  # the tracker may have counted a part before it raised
            self.broken.setdefault(id(owner.tracker), str(found))
        return found

    def go_on(self, calls: tuple[Tell, ...], failed: Tell, pod: PodInfo, row: int, error: BaseException) -> None:
        """A tracker raised in a step that cannot be refused: tell the trackers after it."""
        self._out_of_step(failed, error)
        for call in calls[calls.index(failed) + 1 :]:
            try:
                call(pod, row)
            except BaseException as again:
                self._out_of_step(call, again)

    def foresee(self, begins: bool) -> bool:
        """A block `State.foreseen` begins or ends: tell the trackers; returns whether one of them counts otherwise."""
        changed = False
        for tracked in self._tracked.values():
            if (foresee := tracked.foresee) is not None:
                try:
                    changed |= bool(foresee(begins))
                except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
                    self._out_of_step(foresee, error)
        return changed

    def restore(self, tracker: object, restore: Callable[[], None]) -> None:
        """A step has been undone: let a tracker restore what it had before; see `State.after_undo`."""
        try:
            restore()
        except BaseException as error:  # a plugin may raise anything, and the other steps are to be undone, too
            self._note(tracker, error)

    def _owner(self, call: object) -> _Tracked:
        return self._known(getattr(call, "__self__", None))

    def _known(self, tracker: object) -> _Tracked:
        return self._tracked.get(id(tracker)) or _Tracked(tracker)  # type: ignore[arg-type]  # for its name alone

    def _out_of_step(self, call: Callable[..., object], error: BaseException) -> None:
        self._note(getattr(call, "__self__", None), error)

    def _note(self, tracker: object, error: BaseException) -> None:
        """A tracker has raised where nothing can be taken back: it is out of step."""
        self.broken[id(tracker)] = str(self._failures.raised(self._known(tracker).name, POINT, error))

    def _concerns(self, tracked: _Tracked, cls: PodClass) -> bool:
        concerns: Callable[[PodClass], bool] | None = getattr(tracked.tracker, "concerns", None)
        try:
            return concerns is None or bool(concerns(cls))
        except BaseException as error:  # in doubt the tracker is told of the pods
            self._failures.raised(tracked.name, POINT, error)
            return True

    # Mending

    def mend(self, placed: Iterable[PodInfo], again: bool = False) -> None:
        """Repair the trackers that are out of step; with `again`, also those whose repair has failed before."""
        if again:
            self._hopeless.clear()
        pods = list(placed)
        for key in [key for key in self.broken if key not in self._hopeless]:
            tracked = self._tracked.get(key)
            if tracked is None or self._tell_anew(tracked, pods):
                del self.broken[key]
            else:
                self._hopeless.add(key)

    def fault(self, plugins: Iterable[str]) -> PluginError | None:
        """The exception to raise if a tracker of one of these plugins, or of no known plugin, is out of step."""
        names = set(plugins)
        for key, why in self.broken.items():
            users = self._tracked[key].plugins if key in self._tracked else set()
            if not users or users & names:
                found = PluginError(", ".join(sorted(users & names)), POINT, f"what it counts is out of step: {why}")
                found.is_counted = True
                return found
        return None

    def _tell_anew(self, tracked: _Tracked, placed: list[PodInfo]) -> bool:
        clear: Callable[[], None] | None = getattr(tracked.tracker, "clear", None)
        if clear is None:
            return False
        pods = [pod for pod in placed if self._concerns(tracked, pod.cls)]
        for _ in range(_MOST_LEFT_OUT):
            try:
                clear()
            except BaseException as error:
                self._failures.raised(tracked.name, POINT, error)
                return False
            bad = self._first_bad(tracked, pods)
            if bad is None:
                return True
            pods.remove(bad)
        return False

    def _first_bad(self, tracked: _Tracked, pods: list[PodInfo]) -> PodInfo | None:
        for pod in pods:
            try:
                tracked.tracker.add(pod, pod.row)
            except BaseException as error:
                self._failures.raised(tracked.name, POINT, error)
                return pod
        return None

    def _tell(self, tracked: _Tracked, pods: list[PodInfo]) -> None:
        for pod in pods:
            try:
                tracked.tracker.add(pod, pod.row)
            except BaseException as error:
                found = self._failures.raised(tracked.name, POINT, error)
                self.broken[id(tracked.tracker)] = str(found)


def _add_all(tracker: Any) -> TellAll | None:
    """The tracker's method for many pods, if it has one."""
    method: TellAll | None = getattr(tracker, "add_all", None)
    return method if callable(method) else None


def _counts_alike(tracker: Any) -> Compare | None:
    """The tracker's method that compares two records of a pod, if it has one."""
    method: Compare | None = getattr(tracker, "counts_alike", None)
    return method if callable(method) else None


def _can_be_cleared(call: TellAll) -> bool:
    return hasattr(getattr(call, "__self__", None), "clear")


def check_methods(given: object, what: str, *methods: str) -> None:
    """Raise TypeError unless an object that a plugin has given has these methods; `what` names its kind."""
    for method in methods:
        if not callable(getattr(given, method, None)):
            raise TypeError(f"{shown(given)} is no {what}: it has no method {method}")


def heard(failures: Failures, plugin: str, tell: Callable[..., None], *what: Any) -> None:
    """Call a listener. An exception is counted for the plugin, and affects no other listener."""
    try:
        tell(*what)
    except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
        plugin = plugin or name_of(getattr(tell, "__self__", tell))
        failures.raised(plugin, "Listener", error, f"; {plugin} goes on without this change of {_called(what[0])}")


def _called(what: Any) -> str:
    """What a listener is told of, an object or the name of a node, in words."""
    metadata = getattr(what, "metadata", None)
    if metadata is None:
        return f"Node {what}"
    return f"{type(what).__name__} " + f"{metadata.namespace}/{metadata.name}".lstrip("/")


class Foresight:
    """The blocks of `State.foreseen`: one may be opened within another, and trackers are told of the outermost one."""

    def __init__(self, trackers: Trackers) -> None:
        self._trackers = trackers
        self._depth = 0
        self._has_ending = False

    def __enter__(self) -> bool:
        """Returns whether a tracker counts otherwise in the block."""
        self._depth += 1
        if self._depth == 1:
            self._has_ending = self._trackers.foresee(True)
        return self._has_ending

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._trackers.foresee(False)
