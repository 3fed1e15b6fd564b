"""DefaultPreemption: makes room for a pod by taking pods of lower priority off one node, as kube-scheduler does.

Everything but `evicting` decides and does no I/O.
"""

from gangline_plugins.default_preemption.plugin import Args, DefaultPreemption

__all__ = ["Args", "DefaultPreemption"]
