"""What the scheduler and a process that tries changes tell each other: one question, and lines that answer it.

The process prints each remedy as soon as it is verified. So if the process ends early, for whatever reason, the
remedies found until then are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:  # loaded with the first answer
    from gangline.remedies import Remedies


class TryingRequest(msgspec.Struct, frozen=True):
    """A question."""

    unit: str
    """The identity of a unit: the key of its group, or the UID of its pod."""
    configuration: str
    """The profiles that judge, as YAML."""
    kubeconfig: str | None
    seconds: int
    """After which the process ends."""
    memory: int
    """Bytes that the process may take, those included that it has when it reads this."""


class TryingLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of an answer, as JSON."""

    found: msgspec.Raw = msgspec.Raw(b"null")
    """`Remedies`: those that are new in this line; null if the unit waits no longer, or if there is a fault."""
    is_last: bool = False
    """Whether all has been said. An answer without such a line is cut off."""
    fault: str = ""
    """Why the process goes no further, in words for viewers."""
    detail: str = ""
    """More of the fault, for the log."""


@dataclass(frozen=True, slots=True)
class TryingAnswer:
    """The lines of a process, put together."""

    found: Remedies | None = None
    """Not complete if the process has ended early; None if it had found nothing, or if the unit waits no longer."""
    is_whole: bool = False
    """Whether the process has said all that it had to say."""
    fault: str = ""
    detail: str = ""
    size: int = 0
    """Bytes of all lines."""


def put_together(said: bytes) -> TryingAnswer:
    """The answer in what a process has printed; a line without an end is left out. Raises msgspec.DecodeError."""
    from gangline.remedies import Remedies, joined

    lines = [msgspec.json.decode(text, type=TryingLine) for text in said.split(b"\n")[:-1]]
    parts = [part for line in lines if (part := msgspec.json.decode(line.found, type=Remedies | None)) is not None]
    last = lines[-1] if lines else TryingLine()
    return TryingAnswer(joined(parts), last.is_last, last.fault, last.detail, len(said))
