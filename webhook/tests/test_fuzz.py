"""Reviews of every odd kind, to the whole handler: each has one answer, in time, of bounded size, and none ends it."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline.wire.custom_resources import GpuClaim
from gangline_webhook.claims import Found
from gangline_webhook.injecting import Options
from gangline_webhook.serving import Metrics, Reviewer, answered

from .reviews import UID, container, pod, review, text

SLOWEST = 1.0
"""Seconds of CPU for one review."""
ODD = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
EXAMPLES = settings(suppress_health_check=ODD)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["9" * 5000, "-1", "\ud800", "nvidia.com/gpu", "\x00", "0=node1:0", "é" * 300])
)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
)
annotated = st.dictionaries(
    st.sampled_from(["gpu.scheduling/claim", "gpu.scheduling/allocated", "gpu-scheduling-map", "x"]) | st.text(),
    st.sampled_from(["four", "typo", "0,1", "0=node1:0,1\n1=node2:2", "0=" + "9" * 5000, "=" * 500]) | st.text(),
    max_size=5,
)
PLACES = (
    (),
    ("request",),
    ("request", "uid"),
    ("request", "kind"),
    ("request", "kind", "kind"),
    ("request", "operation"),
    ("request", "namespace"),
    ("request", "object"),
    ("request", "object", "metadata"),
    ("request", "object", "metadata", "annotations"),
    ("request", "object", "metadata", "labels"),
    ("request", "object", "metadata", "name"),
    ("request", "object", "spec"),
    ("request", "object", "spec", "containers"),
    ("request", "object", "spec", "initContainers"),
    ("request", "object", "spec", "schedulerName"),
    ("request", "object", "spec", "devices"),
    ("request", "oldObject"),
)
CLAIM: dict[str, Any] = {"kind": "GpuClaim", "metadata": {"name": "four"}, "spec": {"devices": {"count": 4}}}


class Known:
    """One claim that is there, and others that are not."""

    async def find(self, namespace: str, name: str) -> Found:
        if name != "four":
            return Found(doubt="does not exist")
        return Found(msgspec.convert({"metadata": {"name": name}}, GpuClaim))


@pytest.fixture(scope="module")
def reviewer() -> Reviewer:
    return Reviewer(Known(), Options(frozenset({"gpu-scheduler"}), "runtime"), Metrics())


async def judged(reviewer: Reviewer, body: bytes) -> list[dict[str, Any]]:
    """The answers of both paths; whatever is not an answer fails."""
    found = []
    for path, decide in (("/mutate", reviewer.mutate), ("/validate", reviewer.validate)):
        started = time.thread_time()
        status, answer, outcome = await answered(path, bytearray(body), decide)
        assert time.thread_time() - started < SLOWEST
        assert outcome in ("allowed", "patched", "denied", "malformed"), outcome  # a fault of ours is none of these
        assert len(answer) < 4 * len(body) + 10_000
        document = json.loads(answer)
        assert document["kind"] == "AdmissionReview"
        response = document["response"]
        assert (status == 200) == bool(response["uid"]), "a verdict needs the uid, or the API server does not take it"
        assert response["allowed"] or response["status"]["message"]
        found.append(response)
    return found


@EXAMPLES
@given(annotations=annotated, place=st.sampled_from(PLACES), put=trees)
async def test_a_part_of_another_type_harms_nobody(
    reviewer: Reviewer, annotations: dict[str, str], place: tuple[str, ...], put: Any
) -> None:
    document = review(pod(container(env=[{"name": "A", "value": "1"}]), annotations=annotations))
    parents: Any = document
    for key in place[:-1]:
        parents = parents.setdefault(key, {})
    if place:
        parents[place[-1]] = put

    responses = await judged(reviewer, text(document if place else put))

    if place and place[0] == "request" and len(place) > 1 and place[1] != "uid":
        assert {each["uid"] for each in responses} == {UID}


@EXAMPLES
@given(spec=trees, old=trees, updated=st.booleans())
async def test_claims_of_every_shape_are_judged(reviewer: Reviewer, spec: Any, old: Any, updated: bool) -> None:
    claim = {**CLAIM, "spec": spec}

    await judged(reviewer, text(review(claim, {**CLAIM, "spec": old} if updated else None)))


@EXAMPLES
@given(field=st.sampled_from(["count", "preferIds", "fraction", "memoryGiB", "policy", "migProfile"]), value=trees)
async def test_devices_of_every_shape_are_judged(reviewer: Reviewer, field: str, value: Any) -> None:
    await judged(reviewer, text(review({**CLAIM, "spec": {"devices": {field: value}}})))


@EXAMPLES
@given(place=st.integers(0, 800), put=st.binary(max_size=8), cut=st.integers(0, 900))
async def test_damage_anywhere_in_the_text_harms_nobody(reviewer: Reviewer, place: int, put: bytes, cut: int) -> None:
    whole = text(review(pod(annotations={"gpu.scheduling/claim": "four"})))

    await judged(reviewer, whole[:place] + put + whole[place + len(put) : len(whole) - cut])


@pytest.mark.parametrize("depth", [100, 900, 990, 1000, 2000, 100_000])
@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")], ids=["lists", "objects"])
@pytest.mark.parametrize("where", ["managedFields", "labels"])
async def test_depth_harms_nobody(reviewer: Reviewer, depth: int, brackets: tuple[bytes, bytes], where: str) -> None:
    opening, closing = brackets
    nested = opening * depth + b"0" + closing * depth
    metadata: dict[str, Any] = {"managedFields": "here", where: "here"}
    whole = text(review(pod(**metadata))).replace(b'"here"', nested)

    mutated, _ = await judged(reviewer, whole)

    assert mutated["uid"] == UID
    assert depth < 900 or where == "managedFields" or not mutated["allowed"]


@pytest.mark.parametrize(
    "containers",
    [
        pytest.param([{}] * 40_000, id="containers"),
        pytest.param([container(env=[{}] * 40_000)], id="variables"),
        pytest.param([container(env=[{"name": "CUDA_VISIBLE_DEVICES"}] * 40_000)], id="the same variable"),
    ],
)
async def test_many_small_parts_cost_little(reviewer: Reviewer, containers: list[Any]) -> None:
    body = text(review(pod(*containers, annotations={"gpu.scheduling/claim": "four"})))

    await judged(reviewer, body)
