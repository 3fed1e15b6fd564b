"""Evictions on the in-memory API server: a pod goes if every disruption budget that covers it allows that."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.errors import Conflict, NotFound, TooManyRequests
from gangline.kube.resources import PDBS, PODS
from gangline.simulate import InMemoryServer, VirtualClock


def budget(name: str, allowed: int, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }


@pytest.fixture
def server() -> InMemoryServer:
    """Two pods of one application."""
    made = InMemoryServer(VirtualClock())
    for name in ("a", "b"):
        pod = {"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "x"}}}
        made.create(PODS, {**pod, "spec": {"containers": [{"name": "main", "image": "main:1"}]}})
    return made


def names(server: InMemoryServer) -> list[str]:
    return [each.data["metadata"]["name"] for each in server.list(PODS)]


def test_a_pod_without_a_budget_goes(server: InMemoryServer) -> None:
    server.create(PDBS, budget("other", 0, app="y"))

    server.evict("default", "a", "a")

    assert names(server) == ["b"]


def test_a_budget_lets_as_many_go_as_it_says(server: InMemoryServer) -> None:
    server.create(PDBS, budget("one", 1, app="x"))
    server.evict("default", "a", "a")

    with pytest.raises(TooManyRequests, match="violate the pod's disruption budget"):
        server.evict("default", "b", "b")

    assert names(server) == ["b"]


def test_a_budget_with_an_empty_selector_covers_every_pod(server: InMemoryServer) -> None:
    server.create(PDBS, budget("all", 0))

    with pytest.raises(TooManyRequests):
        server.evict("default", "a", "a")


def test_another_pod_of_the_name_is_not_evicted(server: InMemoryServer) -> None:
    with pytest.raises(Conflict):
        server.evict("default", "a", "another")
    with pytest.raises(NotFound):
        server.evict("default", "c", "c")

    assert names(server) == ["a", "b"]


def test_an_evicted_pod_says_so(server: InMemoryServer) -> None:
    server.bind("default", "a", "a", "n", {})

    server.evict("default", "a", "a")

    pod = server.get(PODS, "a", namespace="default").data
    assert "deletionTimestamp" in pod["metadata"]
    (said,) = (each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert (said["status"], said["reason"]) == ("True", "EvictionByEvictionAPI")
