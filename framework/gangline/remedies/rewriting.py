"""Makes records of waiting pods with another spec, for trials. No cache keeps these records, and no node has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gangline import model
from gangline.errors import InvalidObject
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo

Rewrite = Callable[[model.PodSpec], model.PodSpec]


def rewritten(pods: Sequence[PodInfo], rewrite: Rewrite, cache: Cache) -> list[PodInfo] | None:
    """The pods with rewritten specs; None if a spec cannot be used."""
    specs: dict[int, model.PodSpec] = {}
    made = []
    for pod in pods:
        spec = specs.get(pod.cls.id)
        if spec is None:
            spec = specs[pod.cls.id] = rewrite(pod.spec)
        metadata = model.ObjectMeta(pod.name, pod.namespace)
        status = model.PodStatus(nominated_node_name=pod.nominated_node_name)
        try:
            record = cache.record(model.Pod(metadata, spec, status))
        except InvalidObject:
            return None
        made.append(msgspec.structs.replace(pod, cls=record.cls, slot=record.slot))
    return made
