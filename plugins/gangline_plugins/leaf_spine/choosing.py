"""The leaves that a group may use: the rule for its number of nodes, and the places that follow if the rule is not
strict.

Rules (L is the most frequent size of a leaf, or less if a limit is lower):
- 1 node: for each leaf the fullest node that holds the group, and the fullest such node in no leaf.
- Fewer than L nodes: one leaf.
- L nodes, if no limit reduces the leaf: one complete leaf with no GPU in use.
- n > L nodes: the fewest adjacent leaves that hold the group, at most n / L rounded up.
- A group that is larger than every run of adjacent leaves: one spine, else the fewest spines.
- If the rules are not strict, wider runs of leaves, one spine and the fewest spines follow for every group.
- A group with placed members grows close to them: in their leaf, on adjacent leaves, in their spine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gangline import Rows
from gangline_plugins.leaf_spine.arguments import LeafSpineSettings
from gangline_plugins.leaf_spine.demand import Demand, Stock
from gangline_plugins.leaf_spine.history import GOOD
from gangline_plugins.leaf_spine.layout import Bools, Ints, Layout
from gangline_plugins.leaf_spine.limits import DomainLimits, sizes_of, usable, usual
from gangline_plugins.leaf_spine.terms import DomainOffers, Values


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Placements that obey the rule equally well."""

    offers: DomainOffers
    name: Callable[[int], str]
    rows: Callable[[int], Rows]

    def __len__(self) -> int:
        return len(self.offers.total)


class DomainChoice:
    """The placements for one demand."""

    def __init__(
        self, layout: Layout, demand: Demand, limits: DomainLimits, settings: LeafSpineSettings, history: Values
    ) -> None:
        self._layout = layout
        self.demand = demand
        self._settings = settings
        self._history = history
        self._may = usable(layout, demand, limits)
        self._sizes = sizes_of(layout, demand, limits)
        self._limited = limits.any
        self._usual = usual(self._sizes)
        self.fewest = -(-demand.nodes // self._usual) if self._usual else 1
        """The fewest leaves that could hold the group."""

    def batches(self, placed: Rows) -> Iterator[Batch]:
        """The batches of placements, in the order in which they are to be tried."""
        if len(placed):
            yield from self._close_to(self._layout.place[placed])
            return
        yield from self._by_rule()
        if not self._settings.strict:
            yield from self._wider()
        if (self._is_oversize or not self._settings.strict) and self._settings.crosses:
            yield from self._scattered()

    def why_not(self) -> str:
        """Why no placement obeys the rule."""
        n = self.demand.nodes
        if self._is_oversize and self._settings.crosses:
            return f"all leaves together do not hold a gang of {n} nodes"
        if self._is_oversize:
            return f"no spine has adjacent leaves for a gang of {n} nodes"
        if self._is_complete:
            return f"no complete leaf of {n} nodes is free"
        if self.fewest > 1:
            return f"no {self.fewest} adjacent leaves hold a gang of {n} nodes"
        return f"no {'node holds the gang' if n == 1 else f'leaf holds a gang of {n} nodes'}"

    # The rule

    @property
    def _is_complete(self) -> bool:
        """Whether the group needs exactly one whole leaf."""
        return self.demand.nodes == self._usual == usual(self._layout.sizes) > 1

    @property
    def _is_oversize(self) -> bool:
        """Whether no run of adjacent leaves could hold the group, even if all leaves were empty."""
        longest = int(np.bincount(self._layout.run, weights=self._sizes).max(initial=0))
        most = self._settings.max_leaves
        return longest < self.demand.nodes or (most is not None and self.fewest > most)

    def _by_rule(self) -> Iterator[Batch]:
        if self.demand.nodes == 1:
            yield from self._single_nodes()
        elif self._is_complete:
            complete = (self._used == 0) & (self._leaf_count(self._may) == self._layout.sizes)
            yield from self._windows(1, complete)
        else:
            yield from self._runs(self._narrowest, min(self.fewest, self._settings.max_leaves or self.fewest))

    def _wider(self) -> Iterator[Batch]:
        longest = int(np.bincount(self._layout.run).max(initial=0))
        first = self._narrowest if self.demand.nodes == 1 or self._is_complete else self.fewest + 1
        yield from self._runs(first, min(longest, self._settings.max_leaves or longest))

    @property
    def _narrowest(self) -> int:
        """The leaves that the group would need if all were as large as the largest."""
        return max(1, -(-self.demand.nodes // max(1, int(self._sizes.max(initial=0)))))

    def _runs(self, narrowest: int, widest: int) -> Iterator[Batch]:
        """The narrowest runs of adjacent leaves that hold the group."""
        for width in range(narrowest, widest + 1):
            found = list(self._windows(width))
            if found:
                yield from found
                return

    def _windows(self, width: int, leaves: Bools | None = None) -> Iterator[Batch]:
        first = self._layout.windows(width)
        if width > 1:
            first = first[self._enough_leaves[first]]
        first = first[self.demand.held([self._over(sums, first, width) for sums in self._sums])]
        if leaves is not None:
            first = first[leaves[first]]
        if len(first):
            yield self._batch_of_windows(first, width)

    def _single_nodes(self) -> Iterator[Batch]:
        """For each leaf the fullest node that holds the group alone, and the fullest such node in no leaf."""
        layout, demand = self._layout, self.demand
        holds = demand.held([role.capacity for role in demand.roles])
        holds[layout.rows[~self._may]] = False
        rows = np.flatnonzero(holds)
        free = (demand.stock.total - demand.stock.used)[rows]
        leaf = np.where(layout.place[rows] >= 0, layout.place[rows], len(layout))
        order = np.lexsort((rows, free, leaf))
        _, firsts = np.unique(leaf[order], return_index=True)
        rows, leaf = rows[order[firsts]], leaf[order[firsts]]
        if not len(rows):
            return
        total, used = demand.stock.total[rows], demand.stock.used[rows]
        one, known = np.ones(len(rows), dtype=np.int64), leaf < len(layout)
        past = np.append(self._history, 1.0)[leaf]
        node = DomainOffers(total, used, np.where(used == 0, total, 0), one, one, past)

        def of_leaf(column: Ints, alone: Ints) -> Ints:
            return np.where(known, np.append(column, 0)[leaf], alone)

        offers = DomainOffers(
            total=of_leaf(self._total, node.total),
            used=of_leaf(self._used, node.used),
            untouched=of_leaf(self._untouched, node.untouched),
            span=one,
            spines=one,
            history=past,
            node=node,
        )

        def name(i: int) -> str:
            return layout.name_of(int(leaf[i])) if known[i] else "a node in no leaf"

        yield Batch(offers, name, lambda i: rows[i : i + 1])

    # Beyond the rule

    def _scattered(self) -> Iterator[Batch]:
        """The leaves of one spine, then the leaves of all spines."""
        allowed = self._enough_leaves & self._among_best()
        spines = np.unique(self._layout.spine[allowed & (self._layout.spine >= 0)])
        yield from self._sets(
            [(f"spine {self._layout.spine_name(s)}", allowed & (self._layout.spine == s)) for s in spines]
        )
        yield from self._sets([("leaves of several spines", allowed)])

    def _close_to(self, leaves: Ints) -> Iterator[Batch]:
        leaves = np.unique(leaves[leaves >= 0])
        layout = self._layout
        if len(leaves) and np.all(layout.run[leaves] == layout.run[leaves[0]]):
            low, high = int(leaves[0]), int(leaves[-1])
            for width in range(high - low + 1, int(np.count_nonzero(layout.run == layout.run[low])) + 1):
                around = np.zeros(len(layout), dtype=np.bool_)
                around[max(0, high - width + 1) : low + 1] = True
                found = list(self._windows(width, around))
                yield from found
                if found:
                    break
        spines = np.unique(layout.spine[leaves])
        yield from self._sets([("the spines of the gang", np.isin(layout.spine, spines[spines >= 0]))])
        if self._settings.crosses:
            yield from self._sets([("leaves of several spines", np.ones(len(layout), dtype=np.bool_))])

    def _sets(self, sets: Sequence[tuple[str, Bools]]) -> Iterator[Batch]:
        kept = [
            (n, s)
            for n, s in sets
            if s.any() and self.demand.held([sums[s].sum(keepdims=True) for sums in self._sums])[0]
        ]
        if not kept:
            return
        offers = joined([self._offer_of(leaves) for _, leaves in kept])

        def rows(i: int) -> Rows:
            return self._layout.rows[kept[i][1][self._layout.leaf_of] & self._may]

        yield Batch(offers, lambda i: kept[i][0], rows)

    def _holds(self, leaves: Bools) -> bool:
        return bool(self.demand.held([sums[leaves].sum(keepdims=True) for sums in self._sums])[0])

    def _offer_of(self, leaves: Bools) -> tuple[float, ...]:
        """The values of a set of leaves if the group takes those of them that hold most members."""
        taken, _ = largest(np.where(leaves, self._sums[0], 0), self.demand.counts[0])
        return offer(self._layout, np.sort(taken), self._total, self._used, self._history)

    # Sums over leaves

    @cached_property
    def _sums(self) -> list[Ints]:
        """For each role how many members each leaf holds."""
        layout = self._layout
        found = []
        for role in self.demand.roles:
            column = role.capacity[layout.rows] * self._may
            found.append(np.bincount(layout.leaf_of, weights=column, minlength=len(layout)).astype(np.int64))
        return found

    def _leaf_count(self, mask: Bools) -> Ints:
        return np.bincount(self._layout.leaf_of[mask], minlength=len(self._layout))

    @cached_property
    def _total(self) -> Ints:
        return self._layout.sums(self.demand.stock.total)

    @cached_property
    def _used(self) -> Ints:
        return self._layout.sums(self.demand.stock.used)

    @cached_property
    def _untouched(self) -> Ints:
        return np.where(self._used == 0, self._total, 0)

    @cached_property
    def _enough_leaves(self) -> Bools:
        """For each leaf whether its spine has the required number of leaves."""
        spine = self._layout.spine
        if self._settings.min_leaves <= 1:
            return np.ones(len(spine), dtype=np.bool_)
        counts = np.bincount(spine[spine >= 0], minlength=1)
        return (spine >= 0) & (counts[spine.clip(min=0)] >= self._settings.min_leaves)

    def _among_best(self) -> Bools:
        """For each leaf whether it is among those of its spine that hold most members, as many as one group may use."""
        spine, most = self._layout.spine, self._settings.max_leaves
        if most is None:
            return np.ones(len(spine), dtype=np.bool_)
        order = np.lexsort((-self._sums[0], spine))
        starts = np.searchsorted(spine[order], spine[order])
        best = np.zeros(len(spine), dtype=np.bool_)
        best[order] = np.arange(len(spine)) - starts < most
        return best

    def _over(self, column: Ints, first: Ints, width: int) -> Ints:
        if width == 1:
            return column[first]
        filled = np.concatenate(([0], np.cumsum(column)))
        return filled[first + width] - filled[first]

    def _batch_of_windows(self, first: Ints, width: int) -> Batch:
        layout = self._layout
        history = np.concatenate(([0.0], np.cumsum(self._history)))
        one = np.ones(len(first), dtype=np.int64)
        offers = DomainOffers(
            total=self._over(self._total, first, width),
            used=self._over(self._used, first, width),
            untouched=self._over(self._untouched, first, width),
            span=one * width,
            spines=one,
            history=(history[first + width] - history[first]) / width,
        )
        starts, ends = layout.starts[first].tolist(), layout.starts[first + width].tolist()
        firsts = first.tolist()

        def rows(i: int) -> Rows:
            inside = slice(starts[i], ends[i])
            return layout.rows[inside][self._may[inside]] if self._limited else layout.rows[inside]

        return Batch(offers, lambda i: layout.name_of(firsts[i], width), rows)


def joined(found: Sequence[tuple[float, ...]]) -> DomainOffers:
    """The values of several placements as `DomainOffers`."""
    columns = np.array(found)
    total, used, untouched, span, spines = columns[:, :5].astype(np.int64).T
    return DomainOffers(total, used, untouched, span, spines, columns[:, 5])


def added(found: Sequence[tuple[float, ...]]) -> DomainOffers:
    """The values of one placement, from those of its parts."""
    sums = np.array(found).sum(axis=0)
    return joined([(*sums[:3], max(1.0, sums[3]), max(1.0, sums[4]), sums[5] / len(found))])


def largest(held: Ints, wanted: int) -> tuple[Ints, int]:
    """The fewest places that hold the wanted number, those that hold most first; and how much they do not hold."""
    order = np.argsort(-held, kind="stable")
    filled = np.cumsum(held[order])
    taken = order[: int(np.searchsorted(filled, wanted)) + 1]
    taken = taken[held[taken] > 0]
    return taken, max(0, wanted - int(held[taken].sum()))


def offer(layout: Layout, leaves: Ints, total: Ints, used: Ints, history: Values) -> tuple[float, ...]:
    """Total, used, untouched, span, spines and history of these leaves, given in the order of the line."""
    if not len(leaves):
        return (0.0, 0.0, 0.0, 0.0, 0.0, GOOD)
    spine = layout.spine[leaves]
    changes = np.flatnonzero(np.concatenate(([True], (spine[1:] != spine[:-1]) | (spine[1:] < 0))))
    ends = np.append(changes[1:], len(leaves)) - 1
    span = (layout.position[leaves[ends]] - layout.position[leaves[changes]] + 1).sum()
    untouched = total[leaves][used[leaves] == 0].sum()
    return (
        float(total[leaves].sum()),
        float(used[leaves].sum()),
        float(untouched),
        float(span),
        float(len(changes)),
        float(history[leaves].mean()),
    )


def loose_offer(stock: Stock, rows: Rows) -> tuple[float, ...]:
    """As `offer`, for nodes in no leaf: each counts as a leaf of its own that is adjacent to no other."""
    total, used = stock.total[rows], stock.used[rows]
    untouched = total[used == 0].sum()
    return (float(total.sum()), float(used.sum()), float(untouched), float(len(rows)), float(len(rows)), GOOD)
