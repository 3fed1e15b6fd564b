"""The webhook as the API server and a probe see it: over TLS, and over plain HTTP."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gangline.errors import ConfigError
from gangline.process.certificate_files import Certificates
from gangline.process.endpoints import Endpoints, Served
from gangline.process.listening import Listener
from gangline.wire.custom_resources import GpuClaim
from gangline_e2e.certificates import Authority
from gangline_webhook.bodies import LARGEST
from gangline_webhook.claims import MISSING, UNREADABLE, Found
from gangline_webhook.injecting import Options
from gangline_webhook.serving import Metrics, Reviewer, pages

from .reviews import CUDA, ORDER, UID, Document, container, env, field_ref, patched, pod, review, text

NESTED = text(review(pod(managedFields="here"))).replace(b'"here"', b"[" * 5000 + b"]" * 5000)
CLAIMED = {"gpu.scheduling/claim": "four"}
TOLD = [{"name": CUDA, "value": "0"}, ORDER]
"""What the one GPU of a claim is called in a container to which a device plugin shows it."""


class KnownClaims:
    """Claims of the namespace team by name; some names do something else."""

    def __init__(self, **claims: Document) -> None:
        self._claims = claims

    async def find(self, namespace: str, name: str) -> Found:
        if name == "broken":
            raise RuntimeError("a bug")
        if name == "hanging":
            await asyncio.Event().wait()
        if name == "exhausting":
            raise MemoryError
        if name == "slow":
            return Found(doubt=UNREADABLE)
        if namespace != "team" or name not in self._claims:
            return Found(doubt=MISSING)
        return Found(msgspec.convert({"metadata": {"name": name}, "spec": self._claims[name]}, GpuClaim))


class Running:
    """A webhook, its health server and a client of both."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder, "authority")
        pair = authority.server("webhook")
        metrics = Metrics()
        claims = KnownClaims(
            four={},
            fabric={"network": {"preferredHcas": ["mlx5_0"]}},
            instance={"devices": {"exclusivity": "MIG", "migProfile": "1g.10gb"}},
        )
        reviewer = Reviewer(claims, Options(frozenset({"gpu-scheduler"})), metrics)
        certificates = Certificates(pair.certificate, pair.key)
        self.reviews = Listener(reviewer.application(), "127.0.0.1:0", "--addr", lambda: certificates.context)
        endpoints = Endpoints("127.0.0.1:0", "", plain_metrics=True)
        self.beside = Served(endpoints, pages(metrics.registry, lambda: self.reviews.listening), None)
        self._tls = ssl.create_default_context(cafile=authority.certificate)

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        """Status and JSON."""
        data = io.BytesIO(body if isinstance(body, bytes) else text(body))
        url = f"https://127.0.0.1:{self.reviews.port}{path}"
        async with aiohttp.request("POST", url, data=data, ssl=self._tls, headers=headers) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.request("GET", f"http://127.0.0.1:{self.beside.port}{path}") as answer:
            return answer.status, await answer.text()

    async def mutated(self, document: Document) -> Document:
        """A pod after its review."""
        status, answer = await self.post("/mutate?timeout=5s", review(document))
        assert (status, answer["response"]["allowed"], answer["response"]["uid"]) == (200, True, UID)
        return patched(document, json.loads(base64.b64decode(answer["response"].get("patch", b"W10="))))


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    made = Running(tmp_path)
    await made.beside.open()
    await made.reviews.start()
    yield made
    await made.reviews.stop()
    await made.beside.close()


async def test_a_new_pod_with_a_claim_is_patched(running: Running) -> None:
    assert env(await running.mutated(pod(annotations=CLAIMED))) == TOLD


async def test_the_claim_of_the_pods_namespace_decides_about_the_fabric(running: Running) -> None:
    document = pod(annotations={"gpu.scheduling/claim": "fabric"})

    assert env(await running.mutated(document)) == [*TOLD, {"name": "NCCL_IB_HCA", "value": "=mlx5_0"}]


async def test_a_claim_that_does_not_exist_is_told_and_the_pod_is_patched(running: Running) -> None:
    _, answer = await running.post("/mutate", review(pod(annotations={"gpu.scheduling/claim": "typo"})))

    assert answer["response"]["warnings"] == ["GpuClaim team/typo does not exist; the pod waits until it does"]
    assert "patch" in answer["response"]


async def test_a_claim_that_cannot_be_read_is_told_with_what_the_pod_lacks(running: Running) -> None:
    _, answer = await running.post("/mutate", review(pod(annotations={"gpu.scheduling/claim": "slow"})))

    (warning,) = answer["response"]["warnings"]
    assert warning.startswith("GpuClaim team/slow cannot be read now; the pod gets device ids")
    assert "patch" in answer["response"]


async def test_a_pod_of_a_mig_claim_reads_the_uuids_of_its_instances(running: Running) -> None:
    document = pod(annotations={"gpu.scheduling/claim": "instance"})

    assert env(await running.mutated(document)) == [field_ref(CUDA, "gpu.scheduling/allocated-uuids")]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(review(pod(annotations=CLAIMED), pod()), id="an update"),
        pytest.param(review(pod(annotations=CLAIMED), subResource="status"), id="a subresource"),
        pytest.param(review(None, operation="DELETE"), id="a deletion"),
        pytest.param(review({"kind": "ConfigMap", "metadata": {}}), id="another kind"),
    ],
)
async def test_what_is_no_new_pod_is_let_through(running: Running, request_: Document) -> None:
    status, answer = await running.post("/mutate", request_)

    assert (status, answer["response"]) == (200, {"uid": UID, "allowed": True})


async def test_a_contradictory_claim_is_refused(running: Running) -> None:
    bad = {"kind": "GpuClaim", "metadata": {"name": "bad"}, "spec": {"devices": {"exclusivity": "MIG"}}}

    status, answer = await running.post("/validate", review(bad))

    assert (status, answer["response"]["allowed"]) == (200, False)
    assert answer["response"]["status"]["message"].startswith("GpuClaim bad: spec.devices.migProfile:")
    unchanged = await running.post("/validate", review(bad, bad))
    assert unchanged[1]["response"]["allowed"]


async def test_a_claim_that_an_older_crd_let_through_is_refused_and_told_where(running: Running) -> None:
    odd = {"kind": "GpuClaim", "metadata": {"name": "odd"}, "spec": {"devices": {"policy": "best"}}}

    status, answer = await running.post("/validate", review(odd, name="odd"))

    assert (status, answer["response"]["allowed"]) == (200, False)
    assert answer["response"]["status"]["message"].startswith("GpuClaim odd: object: Invalid enum value 'best'")
    mended = {**odd, "spec": {}}
    assert (await running.post("/validate", review(mended, odd)))[1]["response"]["allowed"]


async def test_a_forged_allocation_on_an_existing_pod_is_refused(running: Running) -> None:
    forged = pod(annotations={"gpu.scheduling/allocated": "0"})

    _, answer = await running.post("/validate", review(forged, pod()))

    assert answer["response"]["allowed"] is False
    assert (await running.post("/validate", review(pod(), pod())))[1]["response"]["allowed"]


async def test_the_older_version_is_answered_in_kind(running: Running) -> None:
    _, answer = await running.post("/mutate", review(pod(annotations=CLAIMED), version="admission.k8s.io/v1beta1"))

    assert answer["apiVersion"] == "admission.k8s.io/v1beta1"


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(text(review({"kind": "Pod", "spec": []})), id="an object that does not fit"),
        pytest.param(text({"request": {"uid": UID, "operation": 1}}), id="a request that does not fit"),
        pytest.param(text({"request": {"uid": UID}})[:-2], id="cut off"),
        pytest.param(NESTED, id="nested deeply"),
        pytest.param(text(review(pod(annotations={"a": "?"}))).replace(b"?", b"\xff"), id="no Unicode"),
        pytest.param(text(review({"kind": "Pod", "spec": {"containers": [{}] * 60_000}})), id="too many objects"),
        pytest.param(text(review({"kind": "Pod", "spec": [0] * 600_000})), id="too many elements"),
    ],
)
async def test_a_review_that_cannot_be_read_is_refused(running: Running, path: str, body: bytes) -> None:
    if path == "/validate":
        body = body.replace(b'"CREATE"', b'"UPDATE"')

    status, answer = await running.post(path, body)

    response = answer["response"]
    assert (status, answer["kind"]) == (200, "AdmissionReview")  # the API server takes no verdict that is not 200
    assert (response["uid"], response["allowed"], response["status"]["code"]) == (UID, False, 400)
    assert response["status"]["message"].startswith("the AdmissionReview cannot be read: ")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00\xff{", id="noise"),
        pytest.param(text({"request": {"uid": 7}}), id="a uid that is none"),
        pytest.param(b" " * 2000 + text({"request": {"uid": UID}})[:-2], id="a uid far from where it should be"),
    ],
)
async def test_what_has_no_uid_is_answered_400(running: Running, body: bytes) -> None:
    status, answer = await running.post("/mutate", body)

    assert (status, answer["response"]["uid"], answer["response"]["allowed"]) == (400, "", False)


async def test_a_uid_inside_of_the_object_is_not_that_of_the_review(running: Running) -> None:
    foreign = {"kind": "Pod", "metadata": {"request": {"uid": "another"}}, "spec": []}

    _, answer = await running.post("/mutate", review(foreign))

    assert answer["response"]["uid"] == UID


@pytest.mark.parametrize(
    ("body", "status", "uid"),
    [
        pytest.param(b" " * (LARGEST + 1), 413, "", id="without a uid"),
        pytest.param(text(review(pod())) + b" " * LARGEST, 200, UID, id="with a uid"),
    ],
)
async def test_a_review_that_is_too_large_is_refused(running: Running, body: bytes, status: int, uid: str) -> None:
    said, answer = await running.post("/mutate", body)

    response = answer["response"]
    assert (said, response["uid"], response["allowed"], response["status"]["code"]) == (status, uid, False, 413)


async def test_a_body_that_is_packed_is_not_unpacked(running: Running) -> None:
    bomb = gzip.compress(text(review(pod())) + b" " * (16 << 20))

    status, answer = await running.post("/mutate", bomb, **{"Content-Encoding": "gzip"})

    assert (status, answer["response"]["allowed"]) == (400, False)


async def test_a_verdict_that_takes_too_long_is_answered_504(running: Running) -> None:
    status, answer = await running.post("/mutate", review(pod(annotations={"gpu.scheduling/claim": "hanging"})))

    assert (status, answer["response"]["uid"], answer["response"]["status"]["code"]) == (504, UID, 504)


@pytest.mark.parametrize(("claim", "logged"), [("broken", "RuntimeError: a bug"), ("exhausting", "MemoryError")])
async def test_a_fault_of_its_own_is_answered_500_with_the_uid_and_the_server_goes_on(
    running: Running, caplog: pytest.LogCaptureFixture, claim: str, logged: str
) -> None:
    status, answer = await running.post("/mutate", review(pod(annotations={"gpu.scheduling/claim": claim})))

    assert (status, answer["response"]["uid"], answer["response"]["status"]["code"]) == (500, UID, 500)
    assert "Traceback" in caplog.text and logged in caplog.text
    assert env(await running.mutated(pod(annotations=CLAIMED))) == TOLD


@pytest.mark.parametrize(
    ("method", "path", "status"), [("POST", "/", 404), ("POST", "/mutated", 404), ("GET", "/mutate", 405)]
)
async def test_other_paths_and_methods_are_not_served(running: Running, method: str, path: str, status: int) -> None:
    url = f"https://127.0.0.1:{running.reviews.port}{path}"
    async with aiohttp.request(method, url, ssl=running._tls) as answer:
        assert answer.status == status


async def test_probes_and_the_older_paths_answer_on_the_plain_port(running: Running) -> None:
    assert [await running.get(path) for path in ("/healthz", "/livez", "/readyz")] == [(200, "ok")] * 3
    assert json.loads((await running.get("/health"))[1]) == {"status": "healthy", "service": "gpu-scheduler"}
    assert json.loads((await running.get("/ready"))[1]) == {"status": "ready", "service": "gpu-scheduler"}


async def test_it_is_not_ready_when_it_no_longer_listens(running: Running) -> None:
    await running.reviews.stop()

    assert (await running.get("/readyz"))[0] == 503
    assert (await running.get("/ready"))[0] == 503
    assert (await running.get("/healthz"))[0] == 200


async def test_reviews_are_counted_by_path_and_outcome(running: Running) -> None:
    await running.mutated(pod(annotations=CLAIMED))
    await running.mutated(pod())
    await running.post("/mutate", b"{}")

    _, metrics = await running.get("/metrics")

    for outcome in ("patched", "allowed", "malformed"):
        assert f'gangline_webhook_requests_total{{outcome="{outcome}",path="/mutate"}} 1.0' in metrics
    assert 'gangline_webhook_request_duration_seconds_count{path="/mutate"} 3.0' in metrics


async def test_an_address_in_use_is_refused(running: Running) -> None:
    taken = f"127.0.0.1:{running.beside.port}"

    with pytest.raises(ConfigError, match=f"^--listen: cannot listen on {taken}: Address already in use"):
        await Served(Endpoints(taken, ""), pages(Metrics().registry, lambda: True), None).open()


async def test_a_pod_with_absurdly_many_containers_is_refused(running: Running) -> None:
    containers = [container(f"c-{number}") for number in range(1001)]

    status, answer = await running.post("/mutate", review(pod(*containers, annotations=CLAIMED)))
    _, fewer = await running.post("/mutate", review(pod(*containers[1:], annotations=CLAIMED)))

    assert (status, answer["response"]["allowed"]) == (200, False)
    assert answer["response"]["status"]["message"] == "a pod that uses GPUs may have 1000 containers"
    assert fewer["response"]["allowed"]


async def test_a_pod_with_annotations_that_nobody_would_store_is_refused_unread(running: Running) -> None:
    at_most = {**CLAIMED, "note": "x" * (262_144 - len("note") - sum(map(len, (*CLAIMED, *CLAIMED.values()))))}

    _, answer = await running.post("/mutate", review(pod(annotations={**at_most, "y": ""})))
    _, fewer = await running.post("/mutate", review(pod(annotations=at_most)))

    assert not answer["response"]["allowed"]
    assert answer["response"]["status"]["message"] == "the annotations of a pod may have 262144 characters together"
    assert fewer["response"]["allowed"]
