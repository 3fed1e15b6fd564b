"""The running scheduler is asked at an address or through kubectl; else the ConfigMap says what is served."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import aiohttp
import click
import pytest
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from gangline import config
from gangline.commands.finding import find_judges, find_running
from gangline.commands.options import Connection
from gangline.commands.reaching import Reached
from gangline.commands.running import Running, unreachable
from gangline.config import SchedulerConfiguration
from gangline.errors import ApiError, ClusterError, Forbidden, NotFound
from gangline.kube.access import Access
from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient
from gangline.kube.interface import Client
from gangline.kube.resources import TOKEN_REVIEWS
from gangline.process.endpoints import Endpoints, Pages, Served
from gangline.process.serving import pages
from gangline.testing.gang_stories import PROFILE

from .scheduler_pods import Pods, forwarding, pod

GANGS = config.load(PROFILE, "test")


async def serving(story: Callable[[str, Credentials], Coroutine[Any, Any, None]]) -> None:
    """A scheduler's endpoint, and credentials for an API server that is not there."""
    decisions = {"uid-1": {"uid": "uid-1", "node": "a"}}

    def configuration() -> SchedulerConfiguration:
        return GANGS

    guarded = pages(configuration, decisions.get)
    served = Served(Endpoints("", "127.0.0.1:0"), Pages({}, {}, guarded=lambda: guarded), cast(Client, LetsIn()))
    await served.open()
    access = Access("http://127.0.0.1:9", "test", authorization="Bearer mine")
    try:
        await story(f"https://127.0.0.1:{served.secure_port}", Credentials(lambda: access))
    finally:
        await served.close()


def reached(pods: Pods, credentials: Credentials) -> Reached:
    """An API server that knows these pods."""
    return Reached(cast(HttpClient, pods), credentials, "context test", "v1.34.0", Connection())


class LetsIn:
    """The part of an API server that lets one token in, to everything."""

    async def create(self, resource: Any, review: Any, *, namespace: str | None = None) -> Any:
        if resource is TOKEN_REVIEWS:
            review.status.authenticated = review.spec.token == "mine"
        else:
            review.status.allowed = True
        return review

    async def get(self, resource: Any, name: str, *, namespace: str | None = None) -> Any:
        raise NotFound(404, "NotFound", name)


async def test_the_endpoint_tells_configuration_and_decisions() -> None:
    async def story(address: str, credentials: Credentials) -> None:
        async with find_running(reached(Pods(), credentials), address) as found:
            assert found.running is not None and found.running.serves == ["gangs"]
            assert await found.running.decision("uid-1") == {"uid": "uid-1", "node": "a"}
            assert await found.running.decision("uid-2") is None

    await serving(story)


async def test_a_decision_that_is_not_remembered_is_404() -> None:
    async def story(address: str, credentials: Credentials) -> None:
        headers = {"Authorization": "Bearer mine"}
        async with aiohttp.request("GET", f"{address}/decisions/uid-2", headers=headers, ssl=False) as found:
            assert found.status == 404
        async with aiohttp.request("GET", f"{address}/decisions/uid-1", ssl=False) as found:
            assert found.status == 401

    await serving(story)


async def test_an_address_that_does_not_answer_is_named() -> None:
    credentials = Credentials(lambda: Access("http://127.0.0.1:9", "test"))
    with pytest.raises(ClusterError) as caught:
        async with find_running(reached(Pods(), credentials), "http://127.0.0.1:9"):
            pass

    assert str(caught.value) == (
        "the service account of this pod: no scheduler answers at http://127.0.0.1:9: Connection refused; "
        "check that the scheduler runs, the network, and the address of --scheduler if it is given"
    )


@pytest.mark.parametrize("address", ["https://[::1", "http://scheduler:port", "http://scheduler:99999", "ftp://host"])
async def test_an_address_that_is_none_is_named(address: str) -> None:
    credentials = Credentials(lambda: Access("http://127.0.0.1:9", "test"))
    with pytest.raises(click.UsageError, match="expected http://HOST:PORT or https://HOST:PORT") as caught:
        async with find_running(reached(Pods(), credentials), address):
            pass

    assert address in str(caught.value)


def test_a_certificate_that_is_not_trusted_is_named() -> None:
    key = ConnectionKey("host", 443, True, True, None, None, None)
    refused = aiohttp.ClientConnectorCertificateError(key, ssl.SSLCertVerificationError("self-signed certificate"))

    said = str(unreachable(URL("https://host"), refused))

    assert "no scheduler answers at https://host: " in said and "self-signed certificate" in said


def test_a_name_that_is_not_known_is_told_without_numbers() -> None:
    key = ConnectionKey("host", 443, True, True, None, None, None)
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    said = str(unreachable(URL("https://host"), aiohttp.ClientConnectorDNSError(key, unknown)))

    assert said.endswith("no scheduler answers at https://host: Name or service not known")


# Without an address


def have_ended(folder: Path) -> bool:
    return not any(Path(f"/proc/{number}").exists() for number in (folder / "pids").read_text().split())


async def test_kubectl_reaches_all_replicas_while_they_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(address: str, credentials: Credentials) -> None:
        forwarding(tmp_path, address, monkeypatch)
        async with find_running(reached(Pods(pod("a"), pod("b")), credentials), None) as found:
            assert found.running is not None and found.running.serves == ["gangs"] and found.refusal == ""
            assert (found.running.where, len(found.running.endpoints)) == ("the running scheduler gpu/a", 2)
            assert await found.running.decision("uid-1") == {"uid": "uid-1", "node": "a"}
            assert not have_ended(tmp_path)
        assert have_ended(tmp_path)

    await serving(story)


async def test_a_replica_that_cannot_be_reached_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(address: str, credentials: Credentials) -> None:
        forwarding(tmp_path, address, monkeypatch, refused="a")
        async with find_running(reached(Pods(pod("a"), pod("b")), credentials), None) as found:
            assert found.running is not None and found.running.where == "the running scheduler gpu/b"
        assert found.refusal.startswith("kubectl port-forward") and found.refusal.endswith("(Forbidden): no")

    await serving(story)


async def test_a_user_whom_the_scheduler_refuses_gets_the_config_map_and_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(address: str, _: Credentials) -> None:
        forwarding(tmp_path, address, monkeypatch)
        stranger = Credentials(lambda: Access("http://127.0.0.1:9", "test", authorization="Bearer stranger"))
        async with find_running(reached(Pods(pod("a"), configuration=PROFILE), stranger), None) as found:
            assert found.running is not None and "ConfigMap gpu/gpu-scheduler-config" in found.running.where
        assert "the running scheduler gpu/a: " in found.refusal and "/configz answers 401" in found.refusal
        assert have_ended(tmp_path)

    await serving(story)


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (Pods(configuration=PROFILE), "no running pod has the labels"),
        (Pods(error=Forbidden(403, "Forbidden", "no"), configuration=PROFILE), "cannot be listed: no"),
        (Pods(pod("a"), configuration=PROFILE), "there is no kubectl to reach the pod gpu/a"),
    ],
    ids=["no pod", "pods may not be listed", "no kubectl"],
)
async def test_without_a_pod_that_can_be_reached_the_config_map_says_what_is_served(
    there: Pods, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    credentials = Credentials(lambda: Access("http://127.0.0.1:9", "test"))

    async with find_running(reached(there, credentials), None) as found:
        pass

    assert found.running is not None and found.running.serves == ["gangs"] and not found.running.endpoints
    assert reason in found.refusal and "--scheduler URL says where" in found.refusal


@pytest.mark.parametrize(
    ("there", "source"),
    [
        (Pods(), "the installed profiles; no running scheduler was found"),
        (Pods(pod("a")), "the installed profiles; the running scheduler could not be asked"),
    ],
    ids=["no pod", "no kubectl"],
)
async def test_a_scheduler_that_cannot_be_asked_is_not_said_to_be_missing(
    there: Pods, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    credentials = Credentials(lambda: Access("http://127.0.0.1:9", "test"))

    by = await find_judges(reached(there, credentials), (), None, None)

    assert by.source == source
    assert by.unasked.startswith("there is no kubectl") == bool(there.pods)


# Replicas


async def test_the_replica_that_remembers_is_asked_first_from_then_on() -> None:
    asked: list[str] = []

    async def standby(path: str) -> bytes:
        asked.append("standby")
        raise ApiError(404, "Not Found", "no such decision is remembered")

    async def leader(path: str) -> bytes:
        asked.append("leader")
        return b'{"uid": "%s"}' % path.rpartition("/")[2].encode()

    running = Running("the running scheduler", GANGS, [standby, leader])

    assert [await running.decision(uid) for uid in ("one", "two")] == [{"uid": "one"}, {"uid": "two"}]
    assert asked == ["standby", "leader", "leader"] and running.refusal == ""


@pytest.mark.parametrize("status", [0, 403, 500])
async def test_a_replica_that_fails_is_not_asked_for_every_pod(status: int) -> None:
    asked: list[str] = []

    async def failing(path: str) -> bytes:
        asked.append(path)
        raise ApiError(status, "Failed", "/decisions fails")

    running = Running("the running scheduler", GANGS, [failing])

    assert [await running.decision(uid) for uid in ("one", "two")] == [None, None]
    assert asked == ["/decisions/one"] and "/decisions fails" in running.refusal
