"""GangPreemption: makes room for a whole group by taking whole groups of lower priority away, or nobody.

Everything in here decides and does no I/O; the victims are evicted by `preemption.evicting`.
"""

from gangline_plugins.gang_preemption.plugin import GangPreemption

__all__ = ["GangPreemption"]
