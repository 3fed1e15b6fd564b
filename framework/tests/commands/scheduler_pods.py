"""Pods of the scheduler without a cluster, and a kubectl that does as a test says."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from gangline.commands.running import LABELS
from gangline.errors import Forbidden
from gangline.kube.interface import Listing
from gangline.kube.resources import CONFIG_MAPS, PODS, SUBJECT_ACCESS_REVIEWS
from gangline.model import ConfigMap, ObjectMeta, Pod, PodStatus, SubjectAccessReview


class Pods:
    """An API server with these pods, or with an error, and with the chart's ConfigMap if it is given.

    `trusted` has the namespaces whose ServiceAccount `scheduler` may bind pods; None if the user may not ask.
    """

    def __init__(
        self,
        *pods: Pod,
        error: Exception | None = None,
        configuration: str = "",
        trusted: Sequence[str] | None = ("gpu",),
    ) -> None:
        self.pods, self.error, self.trusted = pods, error, trusted
        meta = ObjectMeta(name="gpu-scheduler-config", namespace="gpu")
        self.maps = [ConfigMap(meta, {"config.yaml": configuration})] if configuration else []

    async def list(self, resource: Any, *, label_selector: str = "", **more: Any) -> Listing[Any]:
        assert label_selector == LABELS and resource in (PODS, CONFIG_MAPS)
        if resource is CONFIG_MAPS:
            return Listing([*self.maps], "1")
        if self.error is not None:
            raise self.error
        return Listing([*self.pods], "1")

    async def raw(self, path: str, patience: float) -> bytes:
        assert path in [f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}" for pod in self.pods]
        return b'{"kind": "Pod", "spec": {"serviceAccountName": "scheduler"}}'

    async def create(self, resource: Any, review: SubjectAccessReview) -> SubjectAccessReview:
        assert resource is SUBJECT_ACCESS_REVIEWS
        if self.trusted is None:
            raise Forbidden(403, "Forbidden", "may not create subjectaccessreviews")
        asked = review.spec.resource_attributes
        assert asked is not None and (asked.verb, asked.resource, asked.subresource) == ("create", "pods", "binding")
        assert asked.namespace == ""
        users = [f"system:serviceaccount:{namespace}:scheduler" for namespace in self.trusted]
        review.status.allowed = review.spec.user in users
        return review


def pod(name: str, phase: str = "Running", namespace: str = "gpu") -> Pod:
    return Pod(ObjectMeta(name=name, namespace=namespace), status=PodStatus(phase=phase))


def kubectl(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubectl that does this."""
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def forwarding(folder: Path, address: str, monkeypatch: pytest.MonkeyPatch, refused: str = "none") -> None:
    """A kubectl that reaches the endpoint at an address for every pod but one, and keeps its process ids."""
    refusal = f"case \"$*\" in *pod/{refused}\\ *) echo 'Error from server (Forbidden): no'; exit 1;; esac"
    line = f"Forwarding from 127.0.0.1:{URL(address).port} -> 10259"
    kubectl(folder, f'{refusal}\necho $$ >> "$(dirname "$0")/pids"; echo "{line}"; exec sleep 600', monkeypatch)
