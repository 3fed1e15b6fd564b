"""Credentials that are long in coming, and programs of a kubeconfig that print credentials."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.errors import ConfigError
from gangline.kube import auth, exec_plugins
from gangline.kube.access import Access
from gangline.kube.auth import Credentials, load

from .test_auth import SERVER, credential, plugin

WithUser = Callable[[dict[str, Any]], str]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WithUser:
    """Writes a kubeconfig with this user; returns its path. Nobody sits at a terminal."""
    monkeypatch.setattr(exec_plugins, "_is_attended", lambda: False)

    def written(user: dict[str, Any]) -> str:
        path = tmp_path / "config"
        config = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "lab", "user": "me"}}],
            "clusters": [{"name": "lab", "cluster": {"server": SERVER}}],
            "users": [{"name": "me", "user": user}],
        }
        path.write_text(yaml.safe_dump(config))
        return str(path)

    return written


@pytest.mark.parametrize("script", ["sleep 600", "sleep 600 & sleep 600"], ids=["itself", "and a child"])
def test_a_program_that_hangs_is_given_up(
    config: WithUser, tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugins, "DEADLINE", 0.2)
    path = config(plugin(tmp_path, script))
    began = time.monotonic()

    with pytest.raises(ConfigError) as caught:
        load(path, environ={})

    assert str(caught.value) == f"{path}: users[me].exec: exec: no answer within 0.2 s"
    assert time.monotonic() - began < 10.0


@pytest.mark.parametrize("is_told", [False, True])
def test_a_program_is_told_of_the_cluster_if_it_wants_to_be(config: WithUser, tmp_path: Path, is_told: bool) -> None:
    user = plugin(tmp_path, f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/told\n' + credential(token="x"))
    user["exec"]["provideClusterInfo"] = is_told

    load(config(user), environ={})

    told = json.loads((tmp_path / "told").read_text())
    assert (told["kind"], told["spec"]["interactive"]) == ("ExecCredential", False)
    assert told["spec"].get("cluster", {}).get("server") == (SERVER if is_told else None)


async def test_requests_go_on_with_the_old_credentials_while_new_ones_are_long_in_coming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auth, "PATIENCE", 0.05)
    may_end, now, reads = threading.Event(), 0.0, 0

    def read() -> Access:
        nonlocal reads
        reads += 1
        if reads == 2:
            assert may_end.wait(10.0)
        return Access(SERVER, authorization=f"Bearer {reads}", valid_for=60.0)

    credentials = Credentials(read, clock=lambda: now)
    now = 61.0

    first = await asyncio.gather(credentials.authorization(), credentials.authorization())
    refused = asyncio.create_task(credentials.renewed("Bearer 1"))
    await asyncio.sleep(0.1)
    assert not refused.done()  # nothing else would be accepted
    may_end.set()

    assert list(first) == ["Bearer 1"] * 2 and await refused == "Bearer 2"
    assert await credentials.authorization() == "Bearer 2" and reads == 2


async def test_a_request_that_is_cancelled_does_not_end_the_reading_for_others() -> None:
    may_end, now, reads = threading.Event(), 0.0, 0

    def read() -> Access:
        nonlocal reads
        reads += 1
        if reads > 1:
            assert may_end.wait(10.0)
        return Access(SERVER, authorization=f"Bearer {reads}", valid_for=60.0)

    credentials = Credentials(read, clock=lambda: now)
    now = 61.0
    one, other = (asyncio.create_task(credentials.authorization()) for _ in range(2))
    await asyncio.sleep(0.05)

    one.cancel()
    may_end.set()

    assert await other == "Bearer 2" and reads == 2
