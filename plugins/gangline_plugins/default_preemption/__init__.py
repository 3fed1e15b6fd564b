"""DefaultPreemption: makes room for a pod by evicting pods of lower priority from one node, as kube-scheduler does.

This package decides and does no I/O; `preemption.evicting` evicts the victims.
"""

from gangline_plugins.default_preemption.plugin import Args, DefaultPreemption

__all__ = ["Args", "DefaultPreemption"]
