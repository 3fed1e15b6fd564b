"""How far a group has come: the one place that counts members against the number that the group needs.

A group, or a part of it, runs when at least `min_member` of its members have a node at the same time. Whoever asks
whether a group may start, whether it runs in part, or how many members it lacks or can spare makes a `Progress` of the
numbers that it knows, and asks that. Members that have run to their end hold no node, and do not count as placed. They
do not come again: where an object says how many there are, its reader has taken them off `min_member` already.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gangline.api.pod_group import PodGroup, SubGroup


@dataclass(frozen=True, slots=True)
class Progress:
    """The members of a group, or of one part of a group, in numbers."""

    least: int
    """How many have to have a node at the same time; 0 where it does not matter how many have one."""
    placed: int = 0
    """How many have a node, those included whose binding is still on its way."""
    waiting: int = 0
    """How many wait for a node; 0 where the caller asks only about those that are placed."""

    @staticmethod
    def of(group: PodGroup | SubGroup | None, placed: int = 0, waiting: int = 0) -> Progress:
        """The progress of a group or a part of it; None stands for members that need no others."""
        return Progress(0 if group is None else group.min_member, placed, waiting)

    def with_waiting(self, waiting: int) -> Progress:
        """The same group with another number of members that wait."""
        return replace(self, waiting=waiting)

    def without(self, leaving: int) -> Progress:
        """The same group once so many of the placed members have gone."""
        return replace(self, placed=self.placed - leaving)

    @property
    def runs(self) -> bool:
        """Whether as many members have a node as the group needs."""
        return self.placed >= self.least

    @property
    def is_partial(self) -> bool:
        """Whether some members have a node, but too few: they are of no use, and hold what others could use."""
        return 0 < self.placed < self.least

    @property
    def needed(self) -> int:
        """How many more members need a node, at least; 0 where the group has all that it needs."""
        return max(0, self.least - self.placed)

    @property
    def due(self) -> int:
        """How many of the waiting members the group needs: all of them where they are too few."""
        return min(self.waiting, self.needed)

    @property
    def missing(self) -> int:
        """How many members have to come before the group may start: they have no node, and do not wait for one."""
        return max(0, self.needed - self.waiting)

    @property
    def may_start(self) -> bool:
        """Whether a decision on those that wait is of use: somebody waits, and they are enough."""
        return self.waiting >= max(1, self.needed)

    @property
    def there(self) -> int:
        """How many members there are, placed or waiting."""
        return self.placed + self.waiting

    @property
    def spare(self) -> int:
        """How many of the placed members may go while the others run on."""
        return max(0, self.placed - self.least)


def expected(group: PodGroup) -> int:
    """How many pods the group will have in all, as far as its object says; never fewer than it needs."""
    return max(group.size, group.min_member)
