"""Stores and their listeners: a listener that raises harms nobody else."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from gangline import Handle, InvalidObject, hookimpl, resources
from gangline.failures import being_built
from gangline.model import Lease, ObjectMeta
from gangline.state.cache import Cache
from gangline.state.stores import Store
from gangline.testing import cluster, make_node, make_runtime

LEASE = Lease(ObjectMeta(name="lock", namespace="default"))


class Ear:
    """Writes down what it is told, and raises `error` if there is one."""

    def __init__(self, told: list[str], error: BaseException | None = None) -> None:
        self._told = told
        self._error = error

    def on_upsert(self, obj: Lease) -> None:
        self._hear(f"+{obj.metadata.name}")

    def on_remove(self, obj: Lease) -> None:
        self._hear(f"-{obj.metadata.name}")

    def node_upserted(self, node: Any, row: int) -> None:
        self._hear(f"+{node.metadata.name}")

    def node_removed(self, name: str, row: int) -> None:
        self._hear(f"-{name}")

    def _hear(self, what: str) -> None:
        if self._error is not None:
            raise self._error
        self._told.append(what)


ERRORS = pytest.mark.parametrize(
    "error", [KeyError("holder"), InvalidObject("spec", None, "is odd"), SystemExit(1)], ids=lambda e: type(e).__name__
)


@ERRORS
def test_a_listener_that_raises_keeps_an_object_from_nobody(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    cache, told = Cache(), list[str]()
    store = cache.store(resources.LEASES)
    store.subscribe(Ear(told))
    token = being_built.set("Deaf")
    store.subscribe(Ear(told, error))
    being_built.reset(token)
    store.subscribe(Ear(told))

    store.upsert(LEASE)
    assert store.get("lock", "default") is LEASE
    store.upsert(LEASE)
    store.remove("default", "lock")

    assert told == ["+lock", "+lock"] * 2 + ["-lock"] * 2
    assert store.get("lock", "default") is None
    assert cache.failures.counts == {("Deaf", "Listener"): 3}
    [line] = caplog.records
    assert line.getMessage().endswith("; Deaf goes on without this change of Lease default/lock")
    assert line.exc_info is not None
    assert line.exc_info[1] is error


@ERRORS
def test_a_listener_that_raises_for_nodes_keeps_them_from_nobody(error: BaseException) -> None:
    cache, told = Cache(), list[str]()
    for raised in (None, error, None):
        cache.follow_nodes(Ear(told, raised))

    cache.upsert_node(make_node("a"))
    cache.remove_node("a")

    assert told == ["+a", "+a", "-a", "-a"]
    assert cache.failures.counts == {("Ear", "Listener"): 2}


def test_what_is_there_already_does_not_keep_a_plugin_from_being_built() -> None:
    class Deaf:
        name = "Deaf"

        def __init__(self, handle: Handle) -> None:
            handle.state.follow_nodes(Ear([], KeyError("rack")))
            handle.state.store(resources.LEASES).subscribe(Ear([], KeyError("holder")))

        @hookimpl
        def pre_enqueue(self) -> None:
            """Every pod may enter."""

    cache = cluster([make_node("a")])
    cache.store(resources.LEASES).upsert(LEASE)

    assert "Deaf" in make_runtime(cache, Deaf).profile.plugins
    assert cache.failures.counts == {("Deaf", "Listener"): 2}


def test_who_waits_for_changes_is_called_once_when_they_are_there() -> None:
    store: Store[Lease] = Store()
    called: list[int] = []
    for version in (7, 9):
        store.when_seen(version, partial(called.append, version))

    store.reached("8")
    assert called == [7]
    store.reached("12")
    store.reached("13")
    assert called == [7, 9]
    store.when_seen(13, partial(called.append, 13))
    assert called == [7, 9, 13]


def test_who_no_longer_waits_is_not_called() -> None:
    store: Store[Lease] = Store()
    store.reached("8")
    called: list[int] = []

    store.when_seen(9, partial(called.append, 9))()
    store.reached("9")
    store.reached("")  # nobody follows the objects any more
    store.when_seen(8, partial(called.append, 8))

    assert called == []
