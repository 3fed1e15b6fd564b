"""HTTP scheduler extenders: services that filter, score, preempt or bind beside the plugins, as in kube-scheduler.

A pod that an extender looks after is decided in three steps: the plugins filter; the extenders are asked, one after the
other; then the plugins filter again on the cluster as it is by then, and the best node that both leave is taken. All
other pods are decided without a wait for extenders.

What extenders are sent: pods and, unless `nodeCacheCapable`, nodes with metadata, spec and status, but in these only
the fields that Gangline itself reads (those in `gangline.model`). An extender that needs more looks the object up by
name; one that sets `nodeCacheCapable` is sent the names of the nodes alone.
"""

from gangline.extenders.asking import Asker, HttpAsker
from gangline.extenders.deciding import EXTENDER
from gangline.extenders.endpoint import Endpoint
from gangline.extenders.extenders import Extenders
from gangline.extenders.steps import Attempt

__all__ = ["EXTENDER", "Asker", "Attempt", "Endpoint", "Extenders", "HttpAsker"]
