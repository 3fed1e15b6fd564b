"""Which members of a group are alike, so that what is found out about one of them holds for all.

They are where plugins read the same of them: of one pod class, and with one identity.
"""

from __future__ import annotations

from collections.abc import Hashable

from gangline.failures import cause_of
from gangline.groups.strategy import PLACEMENT_STRATEGY
from gangline.profile.runtime import Runtime
from gangline.state.pods import PodInfo

Identity = tuple[Hashable, ...]
"""What is read of a pod beyond its class; empty for most."""


def identity(pod: PodInfo, runtime: Runtime) -> Identity:
    """What the profile's plugins and the framework itself read of a pod beyond its class. Raises PluginError."""
    annotations = runtime.handle.workload(pod)
    said: Identity = (annotations[PLACEMENT_STRATEGY],) if PLACEMENT_STRATEGY in annotations else ()
    for name, ask in runtime.profile.identities:
        try:
            answer = ask(pod, annotations)
            if answer is not None:
                hash(answer)
                said = (*said, name, answer)
        except BaseException as error:  # a plugin's bug fails its group, not the scheduler
            raise runtime.profile.failures.raised(name, "identity", error) from cause_of(error)
    return said
