"""Finds remedies: the cheapest changes that would let a waiting pod or gang start, each of which was tried.

A change is tried on the columns themselves, in a transaction that is undone afterwards, by the search that decides
units. So a remedy is no guess: with this change alone the unit has a place. Some finders also replace a node, or the
report of its GPUs, for a moment. So remedies are looked for on a cluster that was listed for the question, and not on
the columns of a running scheduler.

Every kind of remedy has a finder in a small module. A finder has a limited number of attempts and of CPU seconds. It
sorts the possible changes by columns, and tries the most promising ones first.
"""

from gangline.remedies.finding import find_remedies
from gangline.remedies.remedy import Remedies, Remedy, RemedyCost, RemedyKind, joined

__all__ = ["Remedies", "Remedy", "RemedyCost", "RemedyKind", "find_remedies", "joined"]
