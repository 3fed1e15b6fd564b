"""Health, metrics and configuration as an HTTP client sees them: openly, and by the API server's leave."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gangline.config import Extender, ExtenderTLS, Profile, SchedulerConfiguration
from gangline.errors import ConfigError, Forbidden, NotFound, Unavailable
from gangline.kube.interface import Client
from gangline.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from gangline.model import ConfigMap, ObjectMeta, SubjectAccessReview, TokenReview, UserInfo
from gangline.process.certificate_files import Certificates
from gangline.process.client_ca import AT_A_TIME
from gangline.process.endpoints import Endpoints, Pages, Served, add_process
from gangline.process.server_tls import ServerTLS, pair_of_files
from gangline.process.serving import pages
from gangline.process.version import commit
from gangline.telemetry.exposition import Exposition
from gangline_e2e.certificates import Authority

from ..eventually import until

MAY, MAY_NOT, UNKNOWN = "may", "may-not", "unknown"
ALLOWED = {("prometheus", "/metrics", "get"), ("admin", "/metrics", "get"), ("prometheus", "/configz", "get")}
ALLOWED |= {("prometheus", "/version", "get")}


class Reviews:
    """The part of an API server that says who somebody is and what they may do."""

    def __init__(self) -> None:
        self.tokens = {MAY: "prometheus", MAY_NOT: "somebody"}
        self.asked: list[str] = []
        self.at_once = self.most_at_once = 0
        self.fault: Exception | None = None
        self.client_ca: str | None = None

    async def create(self, resource: Any, review: Any, *, namespace: str | None = None) -> Any:
        self.asked.append(resource.kind)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.fault is not None:
            raise self.fault
        if resource is TOKEN_REVIEWS:
            return self._token(review)
        assert resource is SUBJECT_ACCESS_REVIEWS
        return self._access(review)

    async def get(self, resource: Any, name: str, *, namespace: str | None = None) -> ConfigMap:
        if self.client_ca is None:
            raise NotFound(404, "NotFound", name)
        return ConfigMap(ObjectMeta(name=name, namespace=namespace or ""), data={"client-ca-file": self.client_ca})

    def _token(self, review: TokenReview) -> TokenReview:
        if user := self.tokens.get(review.spec.token):
            review.status.authenticated = True
            review.status.user = UserInfo(user, groups=["system:authenticated"])
        return review

    def _access(self, review: SubjectAccessReview) -> SubjectAccessReview:
        wanted = review.spec.non_resource_attributes
        assert wanted is not None and review.spec.resource_attributes is None
        assert "system:authenticated" in review.spec.groups
        review.status.allowed = (review.spec.user, wanted.path, wanted.verb) in ALLOWED
        return review


class Process:
    """What is served, what its checks say, and a client for it."""

    def __init__(self, plain_metrics: bool = False, client_ca: str | None = None) -> None:
        self.problems: dict[str, str] = {}
        self.configuration = SchedulerConfiguration(profiles=(Profile("gangline"),))
        self.registry = CollectorRegistry()
        add_process(self.registry)
        self.reviews = Reviews()
        self.reviews.client_ca = client_ca
        self.served = self.serving("127.0.0.1:0", plain_metrics)

    def serving(self, listen: str, plain_metrics: bool = False) -> Served:
        return Served(
            Endpoints(listen, "127.0.0.1:0", plain_metrics=plain_metrics),
            Pages(
                {name: partial(self.problems.get, name) for name in ("ping", "loop")},
                {name: partial(self.problems.get, name) for name in ("informers", "plugins")},
                Exposition(self.registry),
                lambda: pages(lambda: self.configuration),
            ),
            cast(Client, self.reviews),
        )

    async def get(self, path: str, accept: str = "*/*") -> tuple[int, str, str]:
        """Status, content type and body, over plain HTTP."""
        url = f"http://127.0.0.1:{self.served.port}{path}"
        async with aiohttp.request("GET", url, headers={"Accept": accept}) as answer:
            return answer.status, answer.headers["Content-Type"], await answer.text()

    async def json(self, path: str) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.served.port}{path}"
        async with aiohttp.request("GET", url) as answer:
            return answer.status, await answer.json()

    async def secure(
        self, path: str, token: str = "", accept: str = "*/*", tls: ssl.SSLContext | bool = False, verb: str = "GET"
    ) -> tuple[int, str, str]:
        """The same over TLS."""
        headers = {"Accept": accept, **({"Authorization": f"Bearer {token}"} if token else {})}
        url = f"https://127.0.0.1:{self.served.secure_port}{path}"
        async with aiohttp.request(verb, url, headers=headers, ssl=tls) as answer:
            return answer.status, answer.headers["Content-Type"], await answer.text()


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    made = Process()
    await made.served.open()
    yield made
    await made.served.close()


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

    status, kind, body = await process.secure("/metrics", MAY)

    families = {family.name: family for family in parse_text(body)}
    assert status == 200 and kind.startswith("text/plain; version=")
    assert families["gangline_bound"].samples[0].value == 3
    assert families["process_resident_memory_bytes"].samples[0].value > 1_000_000
    assert {"python_info", "python_gc_collections"} <= families.keys()


async def test_metrics_are_open_metrics_for_who_asks_for_it(process: Process) -> None:
    _, kind, body = await process.secure("/metrics", MAY, accept="application/openmetrics-text; version=1.0.0")

    families = openmetrics.text_string_to_metric_families(body)  # type: ignore[no-untyped-call]  # the library has none
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert "python_info" in {family.name for family in families}


async def test_configz_shows_the_configuration_that_runs_now(process: Process) -> None:
    process.configuration = SchedulerConfiguration(profiles=(Profile("later"),), parallelism=7)

    status, _, body = await process.secure("/configz", MAY)

    shown = json.loads(body)["componentconfig"]
    assert status == 200
    assert (shown["parallelism"], shown["profiles"][0]["schedulerName"]) == (7, "later")
    assert shown["leaderElection"]["leaseDuration"] == "15s"


async def test_configz_keeps_private_keys_to_itself(process: Process) -> None:
    tls = ExtenderTLS(cert_data=b"certificate", key_data=b"secret")
    process.configuration = SchedulerConfiguration(
        profiles=(Profile("gangline"),), extenders=(Extender(url_prefix="https://e", tls_config=tls),)
    )

    _, _, body = await process.secure("/configz", MAY)

    shown = json.loads(body)["componentconfig"]["extenders"][0]["tlsConfig"]
    assert (shown["certData"], shown["keyData"]) == ("Y2VydGlmaWNhdGU=", "REDACTED")


async def test_version_names_the_release(process: Process) -> None:
    status, _, body = await process.secure("/version", MAY)

    shown = json.loads(body)
    assert status == 200
    assert shown["gitVersion"].startswith(f"v{shown['major']}.{shown['minor']}.")
    assert shown["gitCommit"] == commit()


# Who may see what


@pytest.mark.parametrize("path", ["/metrics", "/configz", "/version", "/nowhere"])
async def test_over_plain_http_there_is_nothing_but_health(process: Process, path: str) -> None:
    assert (await process.get(path))[0] == 404


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/health", "/ready"])
async def test_health_is_open_over_tls_too(process: Process, path: str) -> None:
    assert (await process.secure(path))[0] == 200
    assert process.reviews.asked == []


@pytest.mark.parametrize("path", ["/metrics", "/configz", "/version"])
@pytest.mark.parametrize(
    ("token", "status"),
    [("", 401), (UNKNOWN, 401), (MAY_NOT, 403), (MAY, 200)],
    ids=["no token", "one that nobody knows", "no permission", "permission"],
)
async def test_the_api_server_says_who_may_see_the_rest(process: Process, path: str, token: str, status: int) -> None:
    assert (await process.secure(path, token))[0] == status


@pytest.mark.parametrize("header", ["Basic bWF5Om1heQ==", "Bearer", "Bearer ", "may", "bearer  may-not"])
async def test_another_kind_of_authorization_does_not_let_in(process: Process, header: str) -> None:
    url = f"https://127.0.0.1:{process.served.secure_port}/metrics"
    async with aiohttp.request("GET", url, headers={"Authorization": header}, ssl=False) as answer:
        assert answer.status in (401, 403)


async def test_a_permission_to_read_is_none_to_write(process: Process) -> None:
    assert (await process.secure("/metrics", MAY, verb="POST"))[0] == 405


@pytest.mark.parametrize("fault", [Unavailable(0, "", "no answer"), Forbidden(403, "Forbidden", "no right to ask")])
async def test_without_an_answer_of_the_api_server_nobody_is_let_in(process: Process, fault: Exception) -> None:
    process.reviews.fault = fault
    refused, _, body = await process.secure("/metrics", MAY)
    process.reviews.fault = None

    assert (refused, "API server" in body) == (503, True)
    assert (await process.secure("/metrics", MAY))[0] == 200  # what was not answered is not kept


async def test_answers_are_kept_for_a_while_and_asked_for_a_few_at_a_time(process: Process) -> None:
    await asyncio.gather(*(process.secure("/metrics", MAY) for _ in range(30)))
    assert 2 <= len(process.reviews.asked) <= 2 * AT_A_TIME

    await asyncio.gather(*(process.secure("/metrics", f"{UNKNOWN}-{i}") for i in range(60)))
    assert process.reviews.most_at_once <= AT_A_TIME


async def test_metrics_are_plain_on_request() -> None:
    process = Process(plain_metrics=True)
    await process.served.open()
    try:
        assert [(await process.get(path))[0] for path in ("/metrics", "/configz")] == [200, 404]
    finally:
        await process.served.close()


async def test_a_client_certificate_of_the_clusters_authority_counts_as_its_user(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours", "ours"), Authority(tmp_path / "theirs", "theirs")
    process = Process(client_ca=ours.certificate.read_text())
    await process.served.open()
    try:
        pairs = [ours.client(user, user) for user in ("admin", "somebody")]
        contexts = [_client(pair.certificate, pair.key) for pair in pairs]
        answers = [(await process.secure("/metrics", tls=context))[0] for context in contexts]
        stranger = theirs.client("admin", "admin")
        with pytest.raises(aiohttp.ClientError):
            await process.secure("/metrics", tls=_client(stranger.certificate, stranger.key))
    finally:
        await process.served.close()

    assert answers == [200, 403]
    assert TOKEN_REVIEWS.kind not in process.reviews.asked


def _client(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate, key)
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_is_of_today(process: Process, version: ssl.TLSVersion) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version

    assert (await process.secure("/healthz", tls=context))[0] == 200
    assert ServerTLS(None).context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_every_connection_is_shown_the_same_certificate_whoever_is_trusted_meanwhile(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    tls = ServerTLS(None)
    tls.trust(authority.certificate.read_text())
    first = _shown(tls.context)
    tls.trust(Authority(tmp_path, "another").certificate.read_text())

    assert first == _shown(tls.context)
    assert first != _shown(ServerTLS(None).context)


def test_a_certificate_that_cannot_be_made_is_said_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(name: str) -> NoReturn:
        raise OSError("No space left on device")

    tls = ServerTLS(None)
    with monkeypatch.context() as broken:
        broken.setattr("gangline.process.server_tls._self_signed", full)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                tls.context  # noqa: B018  # it is made when it is asked for

    assert [(record.levelname, record.getMessage().partition(": ")[2]) for record in caplog.records] == [
        ("ERROR", "OSError: No space left on device")
    ]
    assert _shown(tls.context)


def _shown(server: ssl.SSLContext) -> bytes:
    """The certificate that a server shows."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    ends = (context.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True))
    for end in ends * 2:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    shown = ends[0].getpeercert(binary_form=True)
    assert shown is not None
    return shown


async def test_requests_leave_no_line_in_the_log(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await process.get("/healthz")

    assert caplog.records == []


async def test_a_port_in_use_is_one_clear_line(process: Process) -> None:
    listen = f"127.0.0.1:{process.served.port}"

    with pytest.raises(ConfigError) as raised:
        await process.serving(listen).open()

    assert str(raised.value) == f"--listen: cannot listen on {listen}: Address already in use"


async def test_what_is_closed_frees_its_ports() -> None:
    first = Process()
    await first.served.open()
    await first.served.close()
    second = first.serving(f"127.0.0.1:{first.served.port}")

    await second.open()
    await second.close()

    with pytest.raises(aiohttp.ClientConnectorError):
        await first.get("/healthz")


async def test_the_pair_of_files_is_shown_and_so_is_the_one_that_replaces_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki", "authority")
    first, second = authority.server("first"), authority.server("second")
    for source, name in ((first.certificate, "tls.crt"), (first.key, "tls.key")):
        shutil.copy(source, tmp_path / name)
    files = Certificates(tmp_path / "tls.crt", tmp_path / "tls.key")
    tls = ServerTLS(files)
    running = asyncio.create_task(tls.run())
    before = tls.context

    for source, name in ((second.certificate, "tls.crt"), (second.key, "tls.key")):
        shutil.copy(source, tmp_path / name)
    assert files.look()  # whoever sees it first
    await until(lambda: tls.context is not before)

    running.cancel()


def test_a_certificate_without_its_key_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tls-cert-file, --tls-private-key-file: one goes with the other"):
        pair_of_files(tmp_path / "tls.crt", None)
