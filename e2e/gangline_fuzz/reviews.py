"""AdmissionReviews for the webhook: whatever the body is, the answer is a review with the right uid, and never 500."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request
from hypothesis import strategies as st

from gangline_fuzz import from_types, ordinary, texts
from gangline_fuzz.budget import Spent, measured
from gangline_fuzz.inputs import Review
from gangline_fuzz.objects import damage, objects
from gangline_fuzz.oracle import Failed, Found, Kind
from gangline_webhook import injecting, reviewing
from gangline_webhook.claims import Found as FoundClaim
from gangline_webhook.pods import Pod
from gangline_webhook.serving import Metrics, Reviewer

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
CPU, MIB = 1.0, 100.0


class _Claims:
    """Every claim is there."""

    async def find(self, namespace: str, name: str) -> FoundClaim:
        return FoundClaim()


@st.composite
def reviews(draw: st.DrawFn) -> Review:
    """A review of a pod or a claim, odd in the object, in itself, or in its text."""
    key = draw(st.sampled_from(("pods", "pods", "gpuclaims")))
    made, old = draw(objects(key)), draw(st.none() | objects(key))
    if key == "pods":
        made = draw(from_types.edited(Pod, made))
    request: dict[str, Any] = {
        "uid": UID,
        "kind": {"group": "", "version": "v1", "kind": "Pod" if key == "pods" else "GpuClaim"},
        "namespace": "team",
        "name": ordinary.one_of(draw, "p0", ""),
        "operation": "CREATE" if old is None else "UPDATE",
        "object": made,
        "oldObject": old,
    }
    review: Any = {
        "apiVersion": draw(st.sampled_from(reviewing.VERSIONS)),
        "kind": "AdmissionReview",
        "request": request,
    }
    if draw(st.integers(0, 5)) == 0:
        review = draw(from_types.edited(reviewing.Review, review))
    text = texts.written(review)
    if (hurt := draw(damage)) is not None:
        at, gone, new = hurt
        text = text[: at % len(text)] + new + text[at % len(text) + gone :]
    return Review(draw(st.sampled_from(("/mutate", "/validate"))), text)


def play(review: Review) -> None:
    """Raises Failed, or whatever the webhook raises."""
    body = review.text.encode("utf-8", "surrogateescape")
    with measured() as spent:
        response = asyncio.run(_answer(review.path, body))
    _judge(spent)
    text = response.body
    said = json.loads(text if isinstance(text, bytes) else b"")["response"]
    if response.status >= 500:
        raise Failed(Found(Kind.ANSWER, 0, f"{response.status}: {said}", "webhook"))
    if not isinstance(said["allowed"], bool) or not isinstance(said["uid"], str):
        raise Failed(Found(Kind.ANSWER, 0, f"{said}", "webhook"))
    if (uid := _uid(body)) and said["uid"] != uid:
        raise Failed(Found(Kind.ANSWER, 0, f"the uid is {said['uid']!r}", "webhook"))
    for step in json.loads(base64.b64decode(said.get("patch", "W10="))):
        if step["op"] not in ("add", "remove", "replace") or step["path"][:1] != "/":
            raise Failed(Found(Kind.ANSWER, 0, f"no step of a patch: {step}", "webhook"))


async def _answer(path: str, body: bytes) -> web.Response:
    reviewer = Reviewer(_Claims(), injecting.Options(frozenset({"gpu-scheduler"})), Metrics())
    app = reviewer.application()
    stream = StreamReader(BaseProtocol(asyncio.get_running_loop()), limit=2 * len(body) + 1)
    request = make_mocked_request("POST", path, payload=stream, client_max_size=2**23)
    stream.feed_data(body)
    stream.feed_eof()
    found = await app.router.resolve(request)
    answer = await found.handler(request)
    assert isinstance(answer, web.Response)
    return answer


def _judge(spent: Spent) -> None:
    if spent.seconds > CPU or spent.mib > MIB:
        raise Failed(Found(Kind.CPU, 0, f"a review took {spent.seconds:.1f} s and {spent.mib:.0f} MiB", "webhook"))


def _uid(body: bytes) -> str:
    """The uid that an API server would wait for; empty where the body is none of its own."""
    try:
        uid = json.loads(body)["request"]["uid"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return uid if isinstance(uid, str) and uid.isascii() and len(uid) == len(UID) else ""
