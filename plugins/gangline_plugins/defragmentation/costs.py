"""The cost of moving a pod: the GPU-seconds of work that it has to repeat. Also which pods declare that they must not
move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangline import Handle, InvalidObject, PodInfo, annotation_values, custom_resources, group_keys, moments
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.gpu.wants import Want
from gangline_plugins.telling import Teller

CHECKPOINT_INTERVAL = "gangline.dev/checkpoint-interval"
"""On a workload or its pods: the time between two checkpoints, counted from the start of the pod, for example "15m"."""
LAST_CHECKPOINT = "gangline.dev/last-checkpoint"
"""On a pod or its workload: when the last checkpoint was made, RFC 3339. It takes precedence over the interval."""
NEVER_MOVE = "gangline.dev/never-move"
"""On a workload or its pods: "true" keeps the pods on their nodes."""
_WHOLE = 1000
_LEAST_GPUS = 0.01
"""The GPUs that a pod without any counts as, so that moving it is not free."""


class Costs:
    """Judges pods at one moment. Call `of` only for pods for which `why_stays` gives no reason."""

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
        """The cost of moving the pod, in GPU-seconds."""
        again = self._lost(pod, self._handle.workload(pod)) + self._restart + self._penalty.get(pod.priority, 0.0)
        return again * max(_LEAST_GPUS, self.gpus(pod))

    def gpus(self, pod: PodInfo) -> float:
        """How many GPUs a pod takes; a share of a device counts as that share."""
        want = self._wants.of(pod)
        if not isinstance(want, Want):
            return float(min(MOST_DEVICES, pod.cls.requests.real.get(custom_resources.GPU, 0)))
        return want.count * (want.milli / _WHOLE if want.exclusivity == "Shared" and want.milli else 1.0)

    def why_stays(self, pod: PodInfo) -> str:
        """Why the pod declares that it must not be moved; "" if it does not.

        A pod with an unreadable annotation stays, because the cost of moving it is unknown; an event tells the pod so.
        Other pods may still be moved.
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
        """Seconds since the last checkpoint, or since the start if no checkpoint is known."""
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
        """Seconds since the pod started; 0 if it has not started."""
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
