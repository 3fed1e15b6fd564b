"""What is asked of the cluster in a day, as values: the player makes objects of them, the judge knows nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["pod", "fraction", "claim", "gang"]
WHOLE = 1000
"""Thousandths of a device."""
CORE = 1000
"""Thousandths of a CPU that a pod takes beside each of its devices."""
PRIORITIES = {"low": 10, "normal": 100, "high": 1000}
"""Names of PriorityClasses, and their values."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods that are alike; those of a gang belong together."""

    name: str
    at_s: float
    """When it comes, in seconds from the start of the day."""
    kind: Kind
    size: int
    """Pods."""
    gpus: int
    """Devices of each pod."""
    priority: str
    runs_s: float
    """How long each pod runs once it has started."""
    milli: int = WHOLE
    """Thousandths of its device that a pod with a part of one takes."""
    dialect: str = ""
    """How a gang says that it is one."""
    level: str = ""
    """The node label whose value all pods of the gang have to share; "" where they may be anywhere."""
    part: str = ""
    """The node label whose value the pods of each part have to share; "" where there are no parts."""
    part_size: int = 0
    """Pods of a part."""
    is_possible: bool = True
    """Whether the cluster could ever hold it."""

    @property
    def value(self) -> int:
        """Its priority, as a number."""
        return PRIORITIES[self.priority]

    @property
    def gpu_seconds(self) -> float:
        """Devices of all pods times the seconds that they run."""
        return self.size * self.gpus * self.milli / WHOLE * self.runs_s
