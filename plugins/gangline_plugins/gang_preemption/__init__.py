"""GangPreemption: makes room for a whole waiting group by evicting whole groups and pods of lower priority. If the
whole group cannot fit even then, it evicts nobody.

This package decides and does no I/O; `preemption.evicting` evicts the victims.
"""

from gangline_plugins.gang_preemption.plugin import GangPreemption

__all__ = ["GangPreemption"]
