"""Health, metrics and configuration as an HTTP client sees them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gangline.config import Extender, ExtenderTLS, Profile, SchedulerConfiguration
from gangline.errors import ConfigError
from gangline.serving import Server
from gangline.version import commit


class Process:
    """A running server, what its checks say, and a client for it."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self.configuration = SchedulerConfiguration(profiles=(Profile("gangline"),))
        self.registry = CollectorRegistry()
        self.server = Server(
            "127.0.0.1:0",
            {name: partial(self.problems.get, name) for name in ("ping", "loop")},
            {name: partial(self.problems.get, name) for name in ("informers", "plugins")},
            self.registry,
            lambda: self.configuration,
        )

    async def get(self, path: str, accept: str = "*/*") -> tuple[int, str, str]:
        """Status, content type and body."""
        url = f"http://127.0.0.1:{self.server.port}{path}"
        async with aiohttp.request("GET", url, headers={"Accept": accept}) as answer:
            return answer.status, answer.headers["Content-Type"], await answer.text()

    async def json(self, path: str) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.server.port}{path}"
        async with aiohttp.request("GET", url) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    made = Process()
    await made.server.start()
    yield made
    await made.server.stop()


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_a_plain_probe_says_ok(process: Process, path: str) -> None:
    status, kind, body = await process.get(path)

    assert (status, body) == (200, "ok")
    assert kind.startswith("text/plain")


async def test_the_seeds_health_paths_answer_in_json(process: Process) -> None:
    health, ready = await process.json("/health"), await process.json("/ready")

    assert health == (200, {"status": "healthy", "service": "gpu-scheduler"})
    assert ready == (200, {"status": "ready", "service": "gpu-scheduler"})


async def test_a_replica_that_is_not_ready_says_what_it_waits_for_and_stays_alive(process: Process) -> None:
    process.problems["informers"] = "pods are not listed yet"

    assert await process.json("/ready") == (
        503,
        {
            "status": "not ready",
            "service": "gpu-scheduler",
            "waiting_for": ["informers: pods are not listed yet"],
        },
    )
    status, _, body = await process.get("/readyz")
    assert status == 503
    assert body == "[-]informers failed: pods are not listed yet\n[+]plugins ok\nreadyz check failed\n"
    assert [(await process.get(path))[0] for path in ("/healthz", "/livez", "/health")] == [200, 200, 200]


async def test_a_failing_live_check_fails_every_live_path_and_is_named(process: Process) -> None:
    process.problems["loop"] = "stuck for 30 s"

    assert (await process.get("/healthz"))[::2] == (
        500,
        "[+]ping ok\n[-]loop failed: stuck for 30 s\nhealthz check failed\n",
    )
    assert (await process.get("/livez"))[0] == 500
    assert await process.json("/health") == (
        500,
        {"status": "unhealthy", "service": "gpu-scheduler", "failing": ["loop: stuck for 30 s"]},
    )
    assert (await process.get("/readyz"))[0] == 200


async def test_verbose_lists_every_check_as_kubernetes_does(process: Process) -> None:
    status, _, body = await process.get("/readyz?verbose")

    assert (status, body) == (200, "[+]informers ok\n[+]plugins ok\nreadyz check passed\n")


async def test_metrics_come_from_the_registry_with_those_of_the_process(process: Process) -> None:
    Counter("gangline_bound", "Bound.", registry=process.registry).inc(3)

    status, kind, body = await process.get("/metrics")

    families = {family.name: family for family in parse_text(body)}
    assert status == 200 and kind.startswith("text/plain; version=")
    assert families["gangline_bound"].samples[0].value == 3
    assert families["process_resident_memory_bytes"].samples[0].value > 1_000_000
    assert {"python_info", "python_gc_collections"} <= families.keys()


async def test_metrics_are_open_metrics_for_who_asks_for_it(process: Process) -> None:
    _, kind, body = await process.get("/metrics", accept="application/openmetrics-text; version=1.0.0")

    families = openmetrics.text_string_to_metric_families(body)  # type: ignore[no-untyped-call]  # the library has none
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert "python_info" in {family.name for family in families}


async def test_configz_shows_the_configuration_that_runs_now(process: Process) -> None:
    process.configuration = SchedulerConfiguration(profiles=(Profile("later"),), parallelism=7)

    status, body = await process.json("/configz")

    shown = body["componentconfig"]
    assert status == 200
    assert (shown["parallelism"], shown["profiles"][0]["schedulerName"]) == (7, "later")
    assert shown["leaderElection"]["leaseDuration"] == "15s"


async def test_configz_keeps_private_keys_to_itself(process: Process) -> None:
    tls = ExtenderTLS(cert_data=b"certificate", key_data=b"secret")
    process.configuration = SchedulerConfiguration(
        profiles=(Profile("gangline"),), extenders=(Extender(url_prefix="https://e", tls_config=tls),)
    )

    _, body = await process.json("/configz")

    shown = body["componentconfig"]["extenders"][0]["tlsConfig"]
    assert (shown["certData"], shown["keyData"]) == ("Y2VydGlmaWNhdGU=", "REDACTED")


async def test_version_names_the_release(process: Process) -> None:
    status, body = await process.json("/version")

    assert status == 200
    assert body["gitVersion"].startswith(f"v{body['major']}.{body['minor']}.")
    assert body["gitCommit"] == commit()


async def test_an_unknown_path_is_not_found(process: Process) -> None:
    assert (await process.get("/nowhere"))[0] == 404


async def test_requests_leave_no_line_in_the_log(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await process.get("/healthz")

    assert caplog.records == []


async def test_a_port_in_use_is_one_clear_line(process: Process) -> None:
    listen = f"127.0.0.1:{process.server.port}"
    second = Server(listen, {}, {}, CollectorRegistry(), lambda: process.configuration)

    with pytest.raises(ConfigError) as raised:
        await second.start()

    assert str(raised.value) == f"--listen: cannot listen on {listen}: Address already in use"


async def test_a_stopped_server_frees_its_port() -> None:
    first = Process()
    await first.server.start()
    await first.server.stop()
    second = Server(f"127.0.0.1:{first.server.port}", {}, {}, CollectorRegistry(), lambda: first.configuration)

    await second.start()
    await second.stop()

    with pytest.raises(aiohttp.ClientConnectorError):
        await first.get("/healthz")
