"""How far a group has come: the one place that compares the number of members with the number that the group needs.

A group, or a part of it, runs when at least `min_member` of its members have a node at the same time. Code that has to
know whether a group may start, whether it runs in part, or how many members it lacks or can spare makes a `Progress`
from the numbers that it has, and asks that. Members that have run to their end hold no node, and do not count as
placed. Nor do members that are being deleted: others take their place. Members that have succeeded are not created
again, so they are subtracted from `min_member`: by a reader if an object says how many have succeeded, else by
`succeeded`.
"""

from __future__ import annotations

import msgspec

from gangline.api.pod_group import PodGroup, SubGroup


class Progress(msgspec.Struct, frozen=True):
    """The members of a group, or of one part of a group, in numbers."""

    least: int
    """How many members must have a node at the same time; 0 if no number is required."""
    placed: int = 0
    """How many members have a node, including those whose binding is still running."""
    waiting: int = 0
    """How many members wait for a node; 0 if the caller asks only about placed members."""

    @staticmethod
    def of(group: PodGroup | SubGroup | None, placed: int = 0, waiting: int = 0) -> Progress:
        """The progress of a group or of a part of a group; None stands for pods that run without any others."""
        return Progress(0 if group is None else group.min_member, placed, waiting)

    def with_waiting(self, waiting: int) -> Progress:
        """The same group with another number of waiting members."""
        return msgspec.structs.replace(self, waiting=waiting)

    def without(self, leaving: int) -> Progress:
        """The same group after this many placed members have left."""
        return msgspec.structs.replace(self, placed=self.placed - leaving)

    @property
    def runs(self) -> bool:
        """Whether as many members have a node as the group needs."""
        return self.placed >= self.least

    @property
    def is_partial(self) -> bool:
        """Whether some members have a node, but too few: they do no useful work, and hold resources of others."""
        return 0 < self.placed < self.least

    @property
    def needed(self) -> int:
        """How many more members need a node, at least; 0 if the group has all that it needs."""
        return max(0, self.least - self.placed)

    @property
    def due(self) -> int:
        """How many of the waiting members the group needs: all of them if they are too few."""
        return min(self.waiting, self.needed)

    @property
    def missing(self) -> int:
        """How many members have to be created before the group may start: they neither have a node nor wait."""
        return max(0, self.needed - self.waiting)

    @property
    def may_start(self) -> bool:
        """Whether deciding the waiting members is useful: there are some, and they are enough."""
        return self.waiting >= max(1, self.needed)

    @property
    def there(self) -> int:
        """How many members there are, placed or waiting."""
        return self.placed + self.waiting

    @property
    def spare(self) -> int:
        """How many of the placed members may leave while the others run on."""
        return max(0, self.placed - self.least)


def expected(group: PodGroup) -> int:
    """How many pods the group will have in all, as far as its object says; never fewer than it needs."""
    return max(group.size, group.min_member)
