"""A standard output that says that it is a terminal."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """Keeps what is written."""

    def isatty(self) -> bool:
        """See `io.StringIO`."""
        return True
