"""Turns failures of requests into `gangline.errors`, and says which requests may be repeated."""

from __future__ import annotations

import logging

import msgspec
from tenacity import RetryCallState, wait_random_exponential

from gangline.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
)

_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
log = logging.getLogger(__name__)

LONGEST_WAIT = 60.0
"""Seconds, at most, that a request waits before it is repeated, if an answer asks for a wait (Retry-After)."""
TIMEOUT = "Timeout"
"""The reason of the error for a request that was not answered in time."""
_JITTER = wait_random_exponential(multiplier=0.2, max=5.0)


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: int | None = None


class ApiStatus(msgspec.Struct, rename="camel"):
    """The body of a failure (kind Status of meta/v1)."""

    reason: str = ""
    message: str = ""
    code: int = 0
    details: _StatusDetails | None = None


def from_status(status: ApiStatus, retry_after: float | None = None) -> ApiError:
    """The exception for a Status; ``retry_after`` in seconds comes from the HTTP header."""
    if retry_after is None and status.details and status.details.retry_after_seconds:
        retry_after = float(min(max(0, status.details.retry_after_seconds), LONGEST_WAIT))
    default = Unavailable if status.code >= 500 else ApiError
    cls = _BY_STATUS.get(status.code, default)
    if cls is TooManyRequests and retry_after is None:
        retry_after = 1.0
    if retry_after is not None:
        retry_after = min(max(0.0, retry_after), LONGEST_WAIT)
    return cls(status.code, status.reason, status.message, retry_after)


def from_answer(code: int, phrase: str, retry_after: str | None, body: bytes) -> ApiError:
    """The exception for an HTTP answer of 300 and above, whether or not its body is a Status; ``retry_after`` is its
    header Retry-After.
    """
    try:
        status = msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # a proxy's page, or nothing
        status = ApiStatus(message=body[:200].decode("utf-8", "replace").strip())
    status.code = code
    status.reason = status.reason or phrase.replace(" ", "")
    status.message = status.message or phrase
    return from_status(status, _seconds(retry_after))


def from_exception(error: Exception, what: str) -> Unavailable:
    """The exception for a request that got no whole answer; ``what`` names the request.

    An unexpected error comes from a library or a bug: only this request fails, and the error is logged with its
    traceback.
    """
    if not isinstance(error, OSError):
        log.error("%s failed in a way that it should not", what, exc_info=error)
        return Unavailable(0, "InternalError", f"{what}: {type(error).__name__}: {error}")
    if isinstance(error, TimeoutError):
        return Unavailable(0, TIMEOUT, f"{what}: no answer in time")
    return Unavailable(0, "ConnectionFailed", f"{what}: {str(error) or type(error).__name__}")


def worth_retrying(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    return isinstance(error, TooManyRequests | Unavailable)


def retry_wait(state: RetryCallState) -> float:
    """Seconds to wait: what the server asks for, plus a random, exponentially growing share."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, ApiError) else None
    return (asked or 0.0) + _JITTER(state)


def _seconds(header: str | None) -> float | None:
    """The seconds of a Retry-After header; None without a number. API servers do not send its other form, a date."""
    return float(header) if header and header.isdecimal() else None
