"""Reads single values of annotations and labels; an unreadable value is an InvalidObject that names the key."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gangline.api.pod_group import ANYWHERE, FallbackStep
from gangline.errors import InvalidObject
from gangline.groups import keys
from gangline.moments import span
from gangline.state.labels import parse_integer
from gangline.state.pods import PodInfo
from gangline.wire.custom_resources import COMPLETION_INDEX, POD_INDEX

MOST = 2**31 - 1
"""The largest number of members that Kubernetes can store."""
_LONGEST = 64
_LEVEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]{0,315}[A-Za-z0-9])?")
_ANYWHERE = ("any", "anywhere")
_RANKS = (
    keys.KUEUE_POD_INDEX,
    COMPLETION_INDEX,
    keys.LWS_WORKER,
    keys.KOORDINATOR_INDEX,
    keys.VOLCANO_TASK_INDEX,
    POD_INDEX,
    "training.kubeflow.org/replica-index",
)
_RANK_LABELS = (keys.KUEUE_POD_INDEX_LABEL, keys.KAI_POD_INDEX_LABEL)


def invalid(key: str, value: object, why: str) -> InvalidObject:
    """The error for the value of an annotation or label."""
    return InvalidObject(f"annotation {key}", value, why)


def number(values: Mapping[str, str], key: str, least: int = 1) -> int | None:
    """The whole number under this key; None if the key is missing. Raises InvalidObject."""
    text = values.get(key)
    if text is None:
        return None
    found = parse_integer(text.strip()) if len(text) <= _LONGEST else None
    if found is None or not least <= found <= MOST:
        raise invalid(key, text, f"expected a whole number from {least} to {MOST}")
    return found


def flag(values: Mapping[str, str], key: str) -> bool | None:
    """Whether the value is "true" or "false"; None if the key is missing. Raises InvalidObject."""
    text = values.get(key)
    if text is None:
        return None
    if text not in ("true", "false"):
        raise invalid(key, text, 'expected "true" or "false"')
    return text == "true"


def seconds(values: Mapping[str, str], key: str) -> float | None:
    """The Go duration under this key, at most a hundred years; None if the key is missing. Raises InvalidObject."""
    text = values.get(key)
    if text is None:
        return None
    return _duration(key, text, text)


def level(values: Mapping[str, str], key: str) -> str:
    """The name of the level under this key; ANYWHERE if the key is missing. Raises InvalidObject."""
    text = values.get(key)
    return ANYWHERE if text is None else level_name(key, text, text)


def fallback(values: Mapping[str, str], key: str) -> tuple[FallbackStep, ...]:
    """The steps under this key: each level is required until its time, then the next one. Raises InvalidObject."""
    text = values.get(key)
    if text is None:
        return ()
    steps: list[FallbackStep] = []
    after = 0.0
    *first, last = text.split(";")
    for part in first:
        name, _, until = part.partition(",")
        steps.append(FallbackStep(level_name(key, text, name), after))
        ends = _duration(key, text, until.strip())
        if ends <= after:
            raise invalid(key, text, f'"{part.strip()}": times have to grow from step to step')
        after = ends
    if "," in last:
        raise invalid(key, text, f'"{last.strip()}" is the last step, so it has no time')
    return (*steps, FallbackStep(level_name(key, text, last), after))


def rank_of(pod: PodInfo) -> int | None:
    """The pod's rank among its group, from the first key that has it; None if none has. Raises InvalidObject."""
    for pointer in _RANK_LABELS:
        named = pod.annotations.get(pointer)
        if named and named in pod.labels:
            return number(pod.labels, named, least=0)
    for key in _RANKS:
        if key in pod.labels:
            return number(pod.labels, key, least=0)
        if key in pod.annotations:
            return number(pod.annotations, key, least=0)
    return None


def level_name(key: str, text: str, name: str) -> str:
    """The level with this name in the text of an annotation. Raises InvalidObject."""
    name = name.strip()
    if name in _ANYWHERE:
        return ANYWHERE
    if not _LEVEL.fullmatch(name):
        raise invalid(key, text, f'"{name}" is not the name of a level or a label key')
    return name


def _duration(key: str, text: str, part: str) -> float:
    try:
        return span(part)
    except ValueError as error:
        raise invalid(key, text, str(error)) from None
