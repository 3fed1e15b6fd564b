"""One histogram series as plain numbers, so that counting in the hot path costs well under a microsecond."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator


class Series:
    """One histogram series, kept as plain numbers."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """One list for as long as the series exists: `profile.calling` counts the calls of plugins in it directly."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def observe_many(self, value: float, number: int) -> None:
        """Count a value so many times."""
        self.counts[bisect_left(self._bounds, value)] += number
        self.total += value * number

    @property
    def bounds(self) -> tuple[float, ...]:
        """The upper bounds of all counts but the last one."""
        return self._bounds

    @property
    def count(self) -> int:
        """How many values were seen."""
        return sum(self.counts)

    def lines(self, name: str, pairs: str) -> Iterator[str]:
        """The samples, with cumulative counts; ``pairs`` are the labels. Other threads may observe meanwhile."""
        counts, total, cumulated = tuple(self.counts), self.total, 0
        comma = "," if pairs else ""
        for bound, count in zip(self._bounds, counts[:-1], strict=True):
            cumulated += count
            yield f'{name}_bucket{{{pairs}{comma}le="{bound!r}"}} {cumulated}.0\n'
        cumulated += counts[-1]
        yield f'{name}_bucket{{{pairs}{comma}le="+Inf"}} {cumulated}.0\n'
        braces = f"{{{pairs}}}" if pairs else ""
        yield f"{name}_count{braces} {cumulated}.0\n"
        yield f"{name}_sum{braces} {total!r}\n"

    def add(self, other: Series) -> None:
        """Count what another series with the same bounds has seen."""
        self.counts[:] = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts as prometheus_client wants them."""
        cumulated, result = 0, []
        for bound, count in zip((*self._bounds, float("inf")), tuple(self.counts), strict=True):
            cumulated += count
            result.append(("+Inf" if bound == float("inf") else repr(bound), float(cumulated)))
        return result
