"""The loss with a device that shares counters: which other devices can no longer be given when this one is.

A counter set stands for something that can be divided, for example a GPU with MIG, and its *parts* are the devices that
consume its counters. The worth of a set is the sum of the shares of all parts that can still be given. So a part costs
little beside parts that are given already, and much where it takes the room of a larger part, or of several parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gangline.sizes import BoundedCache

_MOST_PARTS = 256
"""In a set of more parts than this, a part costs its share, whatever happens to the other parts."""
_MOST_BYTES = 16 << 20
"""Bytes of all known sets, at most, and as many of the known losses in their states."""
_SET_BYTES = 1024
_STATE_BYTES = 400

Values = NDArray[np.float64]
State = tuple[int, tuple[int, ...]]
"""A mask of the parts that are given, and the thousandths that are left of each counter."""


class CounterSharing:
    """Stands for all counter sets with the same amounts and the same parts."""

    def __init__(self, total: Sequence[int], parts: Sequence[Sequence[int]], known: Known | None = None) -> None:
        """`total` has the amount of each counter, `parts` what each part consumes of each counter; in thousandths."""
        self.consumes = np.array(parts, dtype=np.float64).reshape(len(parts), len(total))
        self._whole = np.maximum(np.array(total, dtype=np.float64), 1.0)
        self.shares: Values = (self.consumes / self._whole).max(axis=1, initial=0.0)
        """By part: the largest fraction of a counter that it consumes."""
        self._all = max(float(self.shares.sum()), 1e-9)
        self._known: Known = known if known is not None else known_losses()

    def fraction(self, amounts: Sequence[int]) -> float:
        """The fraction that these amounts, one per counter, are of the counters, on average over the counters."""
        return float((np.array(amounts, dtype=np.float64) / self._whole).mean()) if len(amounts) else 0.0

    def losses(self, state: State) -> Values:
        """By part: the fraction of the worth of the set that is lost with the part; infinite if it cannot be given."""
        found = self._known.get((self, state))
        return self._known.put((self, state), self._lost(state)) if found is None else found

    def loss(self, state: State, parts: Sequence[int]) -> float:
        """The loss if all of these parts are given, one after the other: a fraction of the worth of the whole set."""
        total = 0.0
        for part in parts:
            total += float(self.losses(state)[part])
            state = self._after(state, part)
        return total

    def _after(self, state: State, part: int) -> State:
        taken, left = state
        consumed = self.consumes[part].tolist()
        return taken | 1 << part, tuple([have - int(amount) for have, amount in zip(left, consumed, strict=True)])

    def _lost(self, state: State) -> Values:
        taken, left = state
        given = np.array([taken >> part & 1 for part in range(len(self.shares))], dtype=np.bool_)
        have = np.array(left, dtype=np.float64)
        possible = (self.consumes <= have).all(axis=1) & ~given
        lost = np.full(len(self.shares), np.inf)
        numbers = np.flatnonzero(possible)
        if len(given) > _MOST_PARTS:
            lost[numbers] = self.shares[numbers] / self._all
            return lost
        after = have - self.consumes[numbers]
        still = np.asarray((self.consumes[numbers][None, :, :] <= after[:, None, :]).all(axis=2))
        still[np.diag_indices(len(numbers))] = False
        lost[numbers] = (self.shares[numbers].sum() - still @ self.shares[numbers]) / self._all
        return lost


Known = BoundedCache[tuple[CounterSharing, State], Values]
"""The losses of the parts, by set and state."""


def known_losses() -> Known:
    """An empty cache of losses, with a limit."""
    return BoundedCache(_MOST_BYTES, lambda key, losses: _STATE_BYTES + losses.nbytes + 32 * len(key[1][1]))


class Sharings:
    """Makes one `CounterSharing` for all counter sets with the same amounts and parts."""

    def __init__(self) -> None:
        self._known = known_losses()
        self._made: BoundedCache[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]], CounterSharing] = BoundedCache(
            _MOST_BYTES, lambda key, _: _SET_BYTES + 48 * len(key[0]) * (1 + len(key[1]))
        )

    def of(self, total: Sequence[int], parts: Sequence[Sequence[int]]) -> CounterSharing:
        """The CounterSharing for these amounts; the arguments are those of `CounterSharing`."""
        key = tuple(total), tuple(map(tuple, parts))
        found = self._made.get(key)
        return self._made.put(key, CounterSharing(total, parts, self._known)) if found is None else found
