"""Pod groups: one shape for every dialect in which pods say that they belong together."""

from gangline.groups.constraints import Constraints, constraints_of
from gangline.groups.finding import Groups, conflict, place_of_object
from gangline.groups.owners import Owners
from gangline.groups.readers import READERS, WATCHES, watched_by
from gangline.groups.reading import Lookup, Reader
from gangline.groups.succeeded import SUCCEEDED, SUCCEEDED_PODS

FOLLOWED = (*WATCHES, SUCCEEDED)
"""What must be watched to know the groups of pods, and what they need."""

__all__ = [
    "FOLLOWED",
    "READERS",
    "SUCCEEDED",
    "SUCCEEDED_PODS",
    "WATCHES",
    "Constraints",
    "Groups",
    "Lookup",
    "Owners",
    "Reader",
    "conflict",
    "constraints_of",
    "place_of_object",
    "watched_by",
]
