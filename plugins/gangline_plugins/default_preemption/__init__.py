"""DefaultPreemption: makes room for a pod by taking pods of lower priority off one node, as kube-scheduler does.

It decides and does no I/O; the victims are evicted by `preemption.evicting`.
"""

from gangline_plugins.default_preemption.plugin import Args, DefaultPreemption

__all__ = ["Args", "DefaultPreemption"]
