"""Pod groups: one shape for every dialect in which pods say that they belong together."""

from gangline.groups.constraints import Constraints, constraints_of
from gangline.groups.finding import Groups, conflict
from gangline.groups.owners import Owners
from gangline.groups.readers import READERS, WATCHES, watched_by
from gangline.groups.reading import Lookup, Reader

__all__ = [
    "READERS",
    "WATCHES",
    "Constraints",
    "Groups",
    "Lookup",
    "Owners",
    "Reader",
    "conflict",
    "constraints_of",
    "watched_by",
]
