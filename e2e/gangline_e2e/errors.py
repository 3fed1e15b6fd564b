"""The errors of the end-to-end harness: one line each, saying where and what.

HarnessError
|-- NoControlPlane    there is nothing here to run end-to-end tests on
|-- StartFailed       a component died, or was not ready in time
|-- Refused           the API server answered with a failure (status, reason)
`-- WaitedTooLong     a condition did not come true before its deadline
"""

from __future__ import annotations


class HarnessError(Exception):
    """The root of the tree."""


class NoControlPlane(HarnessError):
    """No cluster is named, kwokctl is not installed and the cache folder lacks a binary."""


class StartFailed(HarnessError):
    """A component did not start; the text ends with the last lines of its log."""


class Refused(HarnessError):
    """The API server answered with a failure."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}"


class WaitedTooLong(HarnessError):
    """A condition did not come true before its deadline."""
