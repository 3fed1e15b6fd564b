"""What it costs to move a pod: the GPU-seconds of work that it does again, and which pods say that they stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangline import Handle, InvalidObject, PodInfo, annotation_values, custom_resources, group_keys, moments
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.gpu.wants import Want
from gangline_plugins.telling import Teller

CHECKPOINT_INTERVAL = "gangline.dev/checkpoint-interval"
"""On a workload or its pods: how long after a checkpoint the next one is made, from the start on: "15m"."""
LAST_CHECKPOINT = "gangline.dev/last-checkpoint"
"""On a pod or its workload: when the last checkpoint was made, RFC 3339; wins over the interval."""
NEVER_MOVE = "gangline.dev/never-move"
"""On a workload or its pods: "true" keeps them where they are."""
_WHOLE = 1000
_LEAST_GPUS = 0.01
"""GPUs that a pod without any counts as, so that it is not moved for nothing."""


class Costs:
    """Judges pods at one moment; `of` is for those that do not stay."""

    def __init__(
        self, handle: Handle, restart_seconds: float, priority_seconds: float, pods: Iterable[PodInfo]
    ) -> None:
        self._handle = handle
        self._teller = Teller(handle)
        self._now = handle.clock.now()
        self._restart = restart_seconds
        self._wants = device_table(handle.state).wants
        ranks = {priority: rank for rank, priority in enumerate(sorted({pod.priority for pod in pods}))}
        self._penalty = {priority: rank * priority_seconds for priority, rank in ranks.items()}

    def of(self, pod: PodInfo) -> float:
        """GPU-seconds."""
        again = self._lost(pod, self._handle.workload(pod)) + self._restart + self._penalty.get(pod.priority, 0.0)
        return again * max(_LEAST_GPUS, self.gpus(pod))

    def gpus(self, pod: PodInfo) -> float:
        """How many GPUs a pod takes, parts of shared ones as parts."""
        want = self._wants.of(pod)
        if not isinstance(want, Want):
            return float(min(MOST_DEVICES, pod.cls.requests.real.get(custom_resources.GPU, 0)))
        return want.count * (want.milli / _WHOLE if want.exclusivity == "Shared" and want.milli else 1.0)

    def why_stays(self, pod: PodInfo) -> str:
        """Why a pod says that it is not to be moved; "" when it does not.

        One that says something that cannot be read stays, so that no pod is moved at a cost that nobody knows, and none
        keeps others from being moved; the pod is told.
        """
        annotations = self._handle.workload(pod)
        try:
            if annotation_values.flag(annotations, NEVER_MOVE):
                return f"{NEVER_MOVE} is set"
            least = annotation_values.seconds(annotations, group_keys.MIN_RUNTIME)
            self._lost(pod, annotations)
        except InvalidObject as error:
            why = str(error if error.path.startswith("pod ") else _named(pod, error))
            self._teller.once(pod, "InvalidMoveAnnotation", why)
            return why
        return f"younger than its {group_keys.MIN_RUNTIME}" if least is not None and self._age(pod) < least else ""

    def _lost(self, pod: PodInfo, annotations: Mapping[str, str]) -> float:
        """Seconds since the last checkpoint, or since the start where none is known."""
        age = self._age(pod)
        text = annotations.get(LAST_CHECKPOINT)
        if text is not None:
            return min(age, max(0.0, self._now - _moment(pod, text)))
        try:
            interval = annotation_values.seconds(annotations, CHECKPOINT_INTERVAL)
        except InvalidObject as error:
            raise _named(pod, error) from error
        if interval is None:
            return age
        if interval <= 0.0:
            value = annotations[CHECKPOINT_INTERVAL]
            raise InvalidObject(_where(pod, CHECKPOINT_INTERVAL), value, "has to be longer than nothing")
        return age % interval

    def _age(self, pod: PodInfo) -> float:
        """Seconds since a pod was started; 0 for one that has not."""
        try:
            return max(0.0, self._now - moments.moment(pod.start_time)) if pod.start_time else 0.0
        except ValueError:
            raise InvalidObject(f"pod {pod.key}: status.startTime", pod.start_time, "is no time") from None


def _moment(pod: PodInfo, text: str) -> float:
    try:
        return moments.moment(text)
    except ValueError as error:
        raise InvalidObject(_where(pod, LAST_CHECKPOINT), text, str(error)) from None


def _where(pod: PodInfo, key: str) -> str:
    return f"pod {pod.key}: annotation {key}"


def _named(pod: PodInfo, error: InvalidObject) -> InvalidObject:
    return InvalidObject(f"pod {pod.key}: {error.path}", error.value, error.why)
