"""Reviews as the API server writes them, and bodies that are none."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline_webhook import reviewing
from gangline_webhook.pods import Pod
from gangline_webhook.reviewing import Malformed, Verdict

from .reviews import UID, V1, pod, review, text

WHOLE = text(review(pod()))


def answered(verdict: Verdict, version: str = V1) -> Any:
    return json.loads(reviewing.answer(reviewing.read(text(review(pod(), version=version))), verdict))


@pytest.mark.parametrize("version", ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"])
def test_the_answer_has_the_version_and_the_uid_of_the_request(version: str) -> None:
    assert answered(Verdict(), version) == {
        "apiVersion": version,
        "kind": "AdmissionReview",
        "response": {"uid": UID, "allowed": True},
    }


def test_a_patch_is_written_as_base64() -> None:
    response = answered(Verdict(patch=({"op": "remove", "path": "/a"},)))["response"]

    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == [{"op": "remove", "path": "/a"}]


def test_a_refusal_says_why() -> None:
    response = answered(Verdict(allowed=False, message="count: must be at least 1"))["response"]

    assert response["allowed"] is False
    assert response["status"] == {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": "count: must be at least 1",
    }


def test_long_warnings_are_cut_to_what_the_api_server_passes_on() -> None:
    (short, long) = answered(Verdict(warnings=("short", "x" * 1000)))["response"]["warnings"]

    assert short == "short"
    assert len(long) == 256
    assert long.endswith("...")


@pytest.mark.parametrize(
    ("body", "uid"),
    [
        pytest.param(b"", "", id="nothing"),
        pytest.param(b"{}", "", id="no request"),
        pytest.param(b"[]", "", id="not an object"),
        pytest.param(b"\xff\xfe", "", id="not UTF-8"),
        pytest.param(b"[" * 100_000, "", id="nested too deeply"),
        pytest.param(text({**review(pod()), "kind": "Pod"}), UID, id="another kind"),
        pytest.param(text({**review(pod()), "apiVersion": "admission.k8s.io/v2"}), UID, id="another version"),
        pytest.param(text({"request": {"uid": UID}}), UID, id="no kind"),
        pytest.param(text(review(pod(), operation=7)), UID, id="an operation that is no string"),
        pytest.param(text(review(pod(), uid="")), "", id="an empty uid"),
        pytest.param(text(review(pod(), uid=7)), "", id="a uid that is no string"),
        pytest.param(text({"request": {"uid": UID, "a": 1}})[:-3], UID, id="cut off"),
        pytest.param(b'{"request": {"uid": "' + UID.encode() + b'", "x": "\xff"}}', UID, id="not UTF-8 behind the uid"),
    ],
)
def test_what_is_no_review_is_malformed_and_keeps_the_uid_that_can_be_read(body: bytes, uid: str) -> None:
    with pytest.raises(Malformed) as caught:
        reviewing.read(body)

    assert caught.value.uid == uid
    assert "cannot be read" in str(caught.value)


@pytest.mark.parametrize(
    ("obj", "why"),
    [
        (None, "Expected `object`, got `null`"),
        ({"kind": "Pod", "spec": {"containers": {}}}, "$.spec.containers"),
        ({"kind": "Pod", "spec": {"containers": [{"env": [None]}]}}, "$.spec.containers[0].env[0]"),
        ({"kind": "Pod", "metadata": {"annotations": {"a": 1}}}, "$.metadata.annotations[...]"),
    ],
)
def test_an_object_that_does_not_fit_is_malformed_and_the_place_is_named(obj: Any, why: str) -> None:
    found = reviewing.read(text(review(obj)))

    with pytest.raises(Malformed) as caught:
        reviewing.decode(found, found.request.object, Pod)

    assert (caught.value.uid, caught.value.version) == (UID, V1)
    assert why in str(caught.value)


@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=8))
def test_damage_anywhere_never_ends_in_another_error(place: int, put: bytes) -> None:
    body = WHOLE[:place] + put + WHOLE[place + len(put) :]

    try:
        found = reviewing.read(body)
        reviewing.decode(found, found.request.object, Pod)
    except Malformed as error:
        json.loads(reviewing.failure(error.uid, error.version, 400, str(error)))


@given(st.binary())
def test_noise_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        reviewing.read(body)
