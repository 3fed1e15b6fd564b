"""Collects the rights that a user lacks, so that one message names all of them.

The API server says a sentence for each kind. Without any right that would be more than thirty sentences, so the kinds
of one user, verb and place are named in one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gangline.errors import Forbidden

_SENTENCE = re.compile(
    r'(?P<kind>[^\n]{1,300}) is forbidden: (?P<who>User ".{0,300}" cannot \w{1,20}) resource "[^"]{0,300}"'
    r' in API group "[^"]{0,300}" (?P<place>at the cluster scope|in the namespace "[^"]{0,300}")'
)


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
            raise Forbidden(403, "Forbidden", "; ".join(_together(self._messages)))


def _together(sentences: Iterable[str]) -> Iterator[str]:
    """The sentences; those that differ in the kind alone are one."""
    alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for sentence in sentences:
        found = _SENTENCE.fullmatch(sentence)
        key = (found["who"], found["place"]) if found else (sentence, "")
        alike.setdefault(key, []).append((sentence, found["kind"] if found else ""))
    for (who, place), same in alike.items():
        yield same[0][0] if len(same) == 1 else f"{who} {place}: {', '.join(kind for _, kind in same)}"
