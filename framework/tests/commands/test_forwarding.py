"""The pods of the scheduler are found, and kubectl reaches them for the time of a block."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import cast

import pytest

from gangline.commands.forwarding import MOST_PODS, forwarded, pods_of_scheduler
from gangline.commands.options import Connection
from gangline.errors import ConfigError, Forbidden
from gangline.kube.client import HttpClient

from .scheduler_pods import Pods, kubectl, pod


async def test_running_pods_of_the_chart_are_found() -> None:
    there = Pods(pod("a", "Running"), pod("b", "Pending"))

    assert await pods_of_scheduler(cast(HttpClient, there)) == [("gpu", "a")]


@pytest.mark.parametrize("there", [Pods(), Pods(error=Forbidden(403, "Forbidden", "no"))], ids=["none", "forbidden"])
async def test_without_a_pod_it_is_said_what_else_can_be_done(there: Pods) -> None:
    with pytest.raises((ConfigError, Forbidden), match="--scheduler URL says where the scheduler answers"):
        await pods_of_scheduler(cast(HttpClient, there))


async def test_more_replicas_than_an_installation_has_are_not_all_reached() -> None:
    there = Pods(*(pod(f"scheduler-{number}") for number in range(MOST_PODS + 3)))

    assert len(await pods_of_scheduler(cast(HttpClient, there))) == MOST_PODS


async def test_a_pod_whose_service_account_may_not_bind_pods_gets_no_credentials() -> None:
    false = pod("scheduler", namespace="a-tenant")

    assert await pods_of_scheduler(cast(HttpClient, Pods(false, pod("scheduler")))) == [("gpu", "scheduler")]
    with pytest.raises(ConfigError, match=r"pods in a-tenant have the labels .* none is sent credentials; --scheduler"):
        await pods_of_scheduler(cast(HttpClient, Pods(false)))


async def test_a_user_who_may_not_ask_for_rights_reaches_pods_if_one_namespace_alone_has_some() -> None:
    alone = Pods(pod("scheduler"), trusted=None)
    several = Pods(pod("scheduler", "Pending"), pod("scheduler", namespace="a-tenant"), trusted=None)

    assert await pods_of_scheduler(cast(HttpClient, alone)) == [("gpu", "scheduler")]
    with pytest.raises(ConfigError, match="none is sent credentials"):
        await pods_of_scheduler(cast(HttpClient, several))


async def test_kubectl_forwards_the_port_for_as_long_as_the_page_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'echo "$@" > "$(dirname "$0")/words"; echo "Forwarding from 127.0.0.1:4711 -> 10259"; exec sleep 600'
    kubectl(tmp_path, script, monkeypatch)

    async with forwarded("gpu", "gpu-scheduler-0", Connection("/my/config", "other")) as address:
        assert address == "https://127.0.0.1:4711"

    assert (tmp_path / "words").read_text().split() == [
        "--kubeconfig=/my/config",
        "--context=other",
        "port-forward",
        "--address=127.0.0.1",
        "--namespace=gpu",
        "pod/gpu-scheduler-0",
        ":10259",
    ]


async def test_what_kubectl_complains_of_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl(tmp_path, "echo 'error: unable to forward port' >&2; exit 1", monkeypatch)

    with pytest.raises(ConfigError, match="unable to forward port"):
        async with forwarded("gpu", "gpu-scheduler-0", Connection()):
            pass


async def test_without_kubectl_it_is_said_what_else_can_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError, match="there is no kubectl to reach the pod gpu/x; --scheduler URL"):
        async with forwarded("gpu", "x", Connection()):
            pass


async def test_a_kubectl_that_cannot_be_started_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl(tmp_path, "", monkeypatch)
    (tmp_path / "kubectl").write_bytes(b"\x00 no program")

    with pytest.raises(ConfigError, match=r"cannot be started: .*; --scheduler URL"):
        async with forwarded("gpu", "x", Connection()):
            pass


async def test_a_kubectl_that_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl(tmp_path, 'echo $$ > "$(dirname "$0")/pid"; exec sleep 600', monkeypatch)

    with pytest.raises(ConfigError, match="it says nothing"):
        async with forwarded("gpu", "x", Connection(), patience=0.2):
            pass


async def test_a_kubectl_that_does_not_want_to_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.commands.forwarding._FAREWELL", 0.1)
    script = 'trap "" TERM; echo $$ > "$(dirname "$0")/pid"; echo "Forwarding from 127.0.0.1:4711 -> 10259"'
    kubectl(tmp_path, f"{script}; while :; do read line < /dev/zero; done", monkeypatch)

    async with forwarded("gpu", "x", Connection()):
        number = int((tmp_path / "pid").read_text())

    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


COMMAND = """
import asyncio
from gangline.commands.forwarding import ended_in_order, forwarded
from gangline.commands.options import Connection

async def command():
    with ended_in_order():
        async with forwarded("gpu", "x", Connection()):
            print("forwarded", flush=True)
            await asyncio.Event().wait()

asyncio.run(command())
"""


async def test_kubectl_ends_with_a_command_that_is_told_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'echo $$ > "$(dirname "$0")/pid"; echo "Forwarding from 127.0.0.1:4711 -> 10259"; exec sleep 600'
    kubectl(tmp_path, script, monkeypatch)
    command = await asyncio.create_subprocess_exec(sys.executable, "-c", COMMAND, stdout=asyncio.subprocess.PIPE)
    assert command.stdout is not None and await command.stdout.readline() == b"forwarded\n"

    command.terminate()

    assert await command.wait() == -signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
