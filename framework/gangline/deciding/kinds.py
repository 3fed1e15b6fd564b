"""Which rejected pods are alike: the plugins that rejected one of them would now reject each of them.

Each node was rejected by a plugin. If all these plugins declare `reads`, their verdicts follow from the class of the
pod, from their own answer to `identity`, and from the cluster. So they reject every node for other pods as well that
are equal in this, whatever other plugins think of those pods. The plugins' answers may change while pods wait, for
example because a claim has changed that pods name; so pods for which a plugin answers anything are alike only if their
labels, annotations and owners are equal too. No pod is like another one that has a nomination or claims of its own.

Groups are alike only if the cluster as a whole has too little room for them. Then no placement holds the group, so the
rejection follows from the verdicts on its members alone, whatever plugins think of placements. Plugins that might help
the group have to say by `pod_group_key` what their answer follows from.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set

from gangline.api.pod_group import GroupAttempt
from gangline.groups.strategy import PLACEMENT_STRATEGY
from gangline.profile.answers import identity_of
from gangline.profile.conceding import group_keys
from gangline.profile.entries import Filtered
from gangline.profile.runtime import GROUPS, Runtime
from gangline.state.pods import PodInfo


def kind_of(pod: PodInfo, runtime: Runtime, plugins: frozenset[str]) -> Hashable | None:
    """A value that is equal for pods which these plugins reject alike; None if no other pod is known to be like it.

    The plugins have rejected the pod by their filters, or register events for it. Raises PluginError.
    """
    if pod.nominated_node_name or pod.claims or pod.extended_claim or pod.cls.spec.resource_claims:
        return None
    profile = runtime.profile
    if not all(_is_plain(name, runtime) for name in plugins):
        return None
    asked = [identity for identity in profile.identities if identity.name in plugins]
    if not asked:
        return (pod.cls.id,)
    said = identity_of(asked, pod, runtime.handle.workload(pod))
    if all(answer is None for answer in said):
        return (pod.cls.id,)
    owners = tuple(owner.uid for owner in pod.owners)
    return (pod.cls.id, pod.labels.id, frozenset(pod.annotations.items()), owners, *said)


def is_cluster_too_small(attempt: GroupAttempt) -> bool:
    """Whether fewer members have room than are needed, even if they may be anywhere in the cluster."""
    return sum([min(role.room, len(role.pods)) for role in attempt.roles]) < attempt.fewest


def kind_of_group(
    attempt: GroupAttempt,
    filtered: Sequence[Filtered],
    runtime: Runtime,
    plugins: Set[str],
    are_plain: bool | None = None,
) -> Hashable | None:
    """As `kind_of`, for a group for which plugins concede nothing and make no room.

    `filtered` has the verdicts on the first members of the roles. A group has no kind if a plugin of the profile reads
    more of its members than their classes; `are_plain` says that no plugin does, None that this is to be asked.
    """
    roles = attempt.roles
    if attempt.placed or len(filtered) < len(roles) or not is_cluster_too_small(attempt):
        return None
    if any([pod.slot.nominated_node_name or pod.claims or pod.extended_claim for pod in attempt.pods]):
        return None
    if not all(map(runtime.evaluator.is_kept, filtered)):
        return None
    if any([role.pods[0].cls.spec.resource_claims for role in roles]):
        return None
    if not all([_is_plain(name, runtime) for name in plugins if name != GROUPS]):
        return None
    workloads = [runtime.handle.workload(role.pods[0]) for role in roles]
    if not (_are_plain(attempt, workloads, runtime) if are_plain is None else are_plain):
        return None
    keys = group_keys(runtime.profile, attempt)
    if keys is None:
        return None
    group = attempt.group
    topologies = [group.topology, *(part.topology for part in group.subgroups)]
    levels = tuple(topology.required_at(attempt.waited) for topology in topologies)
    strategies = tuple(workload.get(PLACEMENT_STRATEGY) for workload in workloads)
    shape = tuple((role.subgroup, len(role.pods), role.pods[0].cls.id) for role in roles)
    needs = (attempt.needed, attempt.fewest, group.priority, group.topology, group.subgroups, levels)
    return (*needs, shape, strategies, *keys)


def _are_plain(attempt: GroupAttempt, workloads: Sequence[Mapping[str, str]], runtime: Runtime) -> bool:
    """Whether no plugin of the profile reads more of the members than their classes.

    Plugins that reject no node count, too: they may count how many members fit there, or reject nodes on which room is
    made.
    """
    said = [
        identity_of(runtime.profile.identities, role.pods[0], workload)
        for role, workload in zip(attempt.roles, workloads, strict=True)
    ]
    return all([each.count(None) == len(each) for each in said])


def _is_plain(name: str, runtime: Runtime) -> bool:
    """Whether the verdicts of a plugin follow from the class and identity of a pod, or the plugin gives none.

    A plugin without filters may be named only because its events can help the pod. If one of these events has a hint,
    the hint may read anything of the pod, so the pod counts as unlike others.
    """
    profile = runtime.profile
    if name not in profile.plugins:
        return False
    if getattr(profile.plugins[name], "reads", None) is not None:
        return True
    judging = (impl.name for point in ("pre_filter", "filter") for impl in profile.points.get(point, ()))
    events = profile.events.get(name) or ()
    return name not in judging and all(event.hint is None for event in events)
