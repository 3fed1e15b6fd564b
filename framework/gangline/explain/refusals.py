"""Collects the rights that a user lacks, so that one message names all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gangline.errors import Forbidden


class Refusals:
    """The requests that the API server has refused; `check` raises one error that names all of them."""

    def __init__(self) -> None:
        self._messages: dict[str, None] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """A block whose Forbidden is noted and not raised."""
        try:
            yield
        except Forbidden as error:
            self._messages[error.message] = None

    def check(self) -> None:
        """Raises Forbidden if something was refused."""
        if self._messages:
            raise Forbidden(403, "Forbidden", "; ".join(self._messages))
