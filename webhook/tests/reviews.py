"""Builders of pods and reviews for these tests, and the JSON patch of an answer applied."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

Document = dict[str, Any]

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
V1 = "admission.k8s.io/v1"
CUDA = "CUDA_VISIBLE_DEVICES"
NVIDIA = "NVIDIA_VISIBLE_DEVICES"
ORDER = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}
"""Goes with ids of devices."""


def container(name: str = "main", env: Any = None, **fields: Any) -> Document:
    """A container; without ``env`` it has no such list."""
    return {"name": name, "image": "train:1", **({} if env is None else {"env": env}), **fields}


def pod(
    *containers: Document,
    annotations: Mapping[str, str] | None = None,
    init: Iterable[Document] = (),
    name: str = "train-0",
    scheduler: str = "gpu-scheduler",
    **metadata: Any,
) -> Document:
    """A pod, with one plain container unless told otherwise."""
    spec: Document = {"schedulerName": scheduler, "containers": list(containers) or [container()]}
    if init:
        spec["initContainers"] = list(init)
    made = {"namespace": "team", "creationTimestamp": None, **metadata}
    if name:
        made["name"] = name
    if annotations is not None:
        made["annotations"] = dict(annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": spec, "status": {}}


def review(obj: Any, old: Any = None, *, version: str = V1, **request: Any) -> Document:
    """A review of a new object, or of a change if ``old`` is given."""
    kind = obj["kind"] if isinstance(obj, dict) else "Pod"
    group = "gpu.scheduling" if kind == "GpuClaim" else ""
    asked = {
        "uid": UID,
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": kind.lower() + "s"},
        "name": "",
        "namespace": "team",
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": "someone", "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": old,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        **request,
    }
    return {"apiVersion": version, "kind": "AdmissionReview", "request": asked}


def text(document: Any) -> bytes:
    """It as JSON."""
    return json.dumps(document).encode()


def patched(document: Document, patch: Iterable[Mapping[str, Any]]) -> Document:
    """The document with a JSON patch (RFC 6902) of add, remove and replace applied, as strictly as the API server."""
    result = copy.deepcopy(document)
    for step in patch:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        target: Any = result
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        _apply(target, last, step)
    return result


def _apply(target: Any, last: str, step: Mapping[str, Any]) -> None:
    if isinstance(target, list):
        place = len(target) if last == "-" else int(last)
        if step["op"] == "add":
            target.insert(place, step["value"])
        elif step["op"] == "replace":
            target[place] = step["value"]
        else:
            del target[place]
    elif step["op"] == "remove":
        del target[last]
    else:
        if step["op"] == "replace" and last not in target:
            raise KeyError(last)
        target[last] = step["value"]


def env(document: Document, name: str = "main") -> Any:
    """The environment of a container or an init container; None if it has none."""
    everyone = document["spec"]["containers"] + document["spec"].get("initContainers", [])
    return next(each for each in everyone if each["name"] == name).get("env")


def field_ref(name: str, annotation: str = "gpu.scheduling/allocated") -> Document:
    """A variable that takes an annotation's value."""
    path = f"metadata.annotations['{annotation}']"
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
