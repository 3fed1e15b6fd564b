"""The plugin's arguments, and the typical pods that they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from gangline import InvalidObject, quantity
from gangline_plugins.anti_fragmentation.typical import ANYWHERE, PodKind, Typical, models
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.gpu.node_devices import WHOLE

PRODUCT = "nvidia.com/gpu.product"
"""The node label with the model of the GPUs."""
_ROUNDING = 1e-3


class TypicalPod(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A kind of pod that users of the cluster typically create."""

    popularity: Annotated[float, msgspec.Meta(gt=0, le=1)]
    """The fraction of all pods that are of this kind; the fractions of all kinds sum to 1."""
    cpu: str | int | float = 0
    """CPU, as in a request."""
    gpus: Annotated[int, msgspec.Meta(ge=0, le=MOST_DEVICES)] = 0
    fraction: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    """The fraction that the pod takes of each GPU."""
    models: list[str] = []
    """Accepted values of the node label nvidia.com/gpu.product; an empty list accepts any."""


class AntiFragmentationArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of AntiFragmentation."""

    score: Literal["balanced", "published"] = "balanced"
    """`published` is the score of Weng et al., in whole numbers; `balanced` also charges for GPUs left without CPU."""
    typical_pods: list[TypicalPod] = []
    """The typical pods; without any, the pods that users create are counted."""
    half_life_seconds: Annotated[float, msgspec.Meta(gt=0)] = 86_400.0
    """Seconds after which a counted pod counts half."""


def typical_of(pods: Sequence[TypicalPod]) -> Typical:
    """The typical pods of the arguments. Raises InvalidObject."""
    total = sum(pod.popularity for pod in pods)
    if abs(total - 1.0) > _ROUNDING:
        raise InvalidObject("typicalPods", None, f"the popularities sum to {total:.6g}; they must sum to 1")
    return tuple((_kind(pod, f"typicalPods[{i}]"), pod.popularity) for i, pod in enumerate(pods))


def _kind(pod: TypicalPod, path: str) -> PodKind:
    try:
        cpu = quantity.milli(pod.cpu)
    except InvalidObject as error:
        raise InvalidObject(f"{path}.cpu", error.value, error.why) from error
    if not pod.gpus:
        if pod.fraction != 1.0 or pod.models:
            raise InvalidObject(path, None, "fraction and models mean nothing without gpus")
        return PodKind(cpu)
    where = models(PRODUCT, pod.models) if pod.models else ANYWHERE
    return PodKind(cpu, pod.gpus, round(pod.fraction * WHOLE), where)
