"""Shared code of the tests of the simulation: virtual time for async tests, and small objects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from gangline.simulate import run

Result = TypeVar("Result")


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, Result]]) -> Callable[..., Result]:
    """An async test that takes the fixture ``clock`` and runs on a virtual loop with it."""

    @functools.wraps(test)
    def play(**fixtures: Any) -> Result:
        return run(test(**fixtures), fixtures["clock"])

    return play


def pod(name: str, *, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """A pod manifest."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "main"}], **spec},
    }


def node(name: str) -> dict[str, Any]:
    """A node manifest."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": {"cpu": "8", "memory": "32Gi"}},
    }
