"""Guesses that come back: when a step of a transaction is undone, claims get exactly the guesses of before the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from gangline import State
from gangline_plugins.dynamic_resources.entries import Allocation, ClaimEntry


class Restoring:
    """Asks the transaction to restore guesses; outside of a transaction it does nothing."""

    def __init__(
        self, state: State, tracker: object, entries: Mapping[str, ClaimEntry], settle: Callable[[str], None]
    ) -> None:
        self._state = state
        self._tracker = tracker
        self._entries = entries
        self._settle = settle

    def before_step(self, uids: Iterable[str]) -> None:
        """A step may end the guesses of these claims, which are to have them again when it has been undone."""
        had = [(uid, self._entries[uid].guess) for uid in uids if uid in self._entries]
        if not self._state.is_undoing and any([guess is not None for _, guess in had]):
            self._state.after_undo(self._tracker, partial(self._restore, had))

    def guessed(self, uid: str) -> None:
        """A step has made a guess for a claim. Other pods that use the claim keep the guess when the pod of the step is
        taken off, but not when the step is undone.
        """
        if len(self._entries[uid].consumers) > 1:
            self._state.after_undo(self._tracker, partial(self._restore, [(uid, None)]))

    def _restore(self, guesses: Iterable[tuple[str, Allocation | None]]) -> None:
        for uid, guess in guesses:
            entry = self._entries.get(uid)
            if entry is not None and entry.consumers and entry.guess is not guess:
                entry.guess = guess
                self._settle(uid)
