"""Reads AdmissionReviews and writes their answers. This module does no I/O, and decides about no object.

Rules
- An answer has the request's uid and apiVersion; otherwise the API server takes it for a failed call.
- A review that cannot be read is refused, with the uid if it can be found: after a failed call with the failurePolicy
  Ignore, the API server would store the object unchanged.
- The uid is searched only at the beginning, where the API server writes it; an object cannot put another uid there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from gangline.errors import GanglineError
from gangline.model import Object

VERSIONS = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
LONGEST_WARNING = 256
"""Characters; the API server cuts what is longer."""

T = TypeVar("T")
Operation = dict[str, Any]
"""One step of a JSON patch."""

_NULL = msgspec.Raw(b"null")
_UID = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([0-9A-Za-z-]{1,64})"')
_HEAD = 1024
"""Bytes at the beginning of a review in which its uid stands."""
_REASONS = {
    400: "BadRequest",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Malformed(GanglineError):
    """A review cannot be read; ``uid`` is empty where it could not be made out."""

    def __init__(self, uid: str, version: str, why: str) -> None:
        super().__init__(uid, version, why)
        self.uid = uid
        self.version = version
        self.why = why

    def __str__(self) -> str:
        return f"the AdmissionReview cannot be read: {self.why}"


class Kind(Object):
    """The kind of the object in a request."""

    group: str = ""
    version: str = ""
    kind: str = ""


class Request(Object):
    """The request of the API server; its objects are decoded by the code that knows their kind."""

    uid: Annotated[str, msgspec.Meta(min_length=1)]
    kind: Kind = msgspec.field(default_factory=Kind)
    operation: str = ""
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL


class Review(Object):
    """A request and the version of the API that it is written in."""

    api_version: str
    kind: str
    request: Request


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer: allowed, or refused with a message; a JSON patch; and warnings for the user."""

    allowed: bool = True
    message: str = ""
    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()


class _Uid(msgspec.Struct):
    uid: str = ""


class _Identified(msgspec.Struct):
    request: _Uid


_reviews = msgspec.json.Decoder(Review)
_identities = msgspec.json.Decoder(_Identified)


def read(body: bytes | bytearray) -> Review:
    """The review in a request's body; Malformed if it is none."""
    try:
        review = _reviews.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(uid_in(body), VERSIONS[0], _words(error)) from None
    if review.kind != "AdmissionReview":
        raise Malformed(review.request.uid, VERSIONS[0], f"kind: expected AdmissionReview, got {review.kind!r}")
    if review.api_version not in VERSIONS:
        why = f"apiVersion: expected {' or '.join(VERSIONS)}, got {review.api_version!r}"
        raise Malformed(review.request.uid, VERSIONS[0], why)
    return review


def decode(review: Review, part: msgspec.Raw, kind: type[T]) -> T:
    """An object of the review as a struct; Malformed if it does not fit."""
    try:
        return msgspec.json.decode(part, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(review.request.uid, review.api_version, f"object: {_words(error)}") from None


def answer(review: Review, verdict: Verdict) -> bytes:
    """The review that carries a verdict back."""
    response: dict[str, Any] = {"uid": review.request.uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = _status(422, verdict.message)
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = msgspec.json.encode(verdict.patch)  # bytes are written as base64
    if verdict.warnings:
        response["warnings"] = [_shorten(warning) for warning in verdict.warnings]
    return _encode(review.api_version, response)


def failure(uid: str, version: str, code: int, message: str) -> bytes:
    """The review that says why there is no verdict; ``code`` is the HTTP status that goes with it."""
    return _encode(version, {"uid": uid, "allowed": False, "status": _status(code, message)})


def _encode(version: str, response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": version, "kind": "AdmissionReview", "response": response})


def _status(code: int, message: str) -> dict[str, Any]:
    return {"status": "Failure", "code": code, "reason": _REASONS[code], "message": message}


def uid_in(body: bytes | bytearray) -> str:
    """The uid in an invalid body, which may not even be JSON; empty if it cannot be found."""
    try:
        return _identities.decode(body).request.uid
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _UID.search(body[:_HEAD])
        return found[1].decode() if found else ""


def _words(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _shorten(warning: str) -> str:
    return warning if len(warning) <= LONGEST_WARNING else warning[: LONGEST_WARNING - 3] + "..."
