"""Calls hooks that concern one pod for many members of a group: plugin by plugin, without timing.

A gang of 1,000 pods would otherwise cost some ten thousand calls, each with its own clock, checks and bookkeeping. What
a plugin answers for one pod does not depend on the answers for the others, so the order of the calls does not matter.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from gangline.api.cycle_state import Cycle
from gangline.failures import cause_of, shown
from gangline.profile.answers import identity_of
from gangline.profile.entries import Entry, Filtered
from gangline.profile.implementations import Identity, Implementation
from gangline.state.nodes import Nodes
from gangline.state.pods import PodInfo
from gangline.status import SKIP, Code, Narrow, Status

Prepared = tuple[Cycle, frozenset[str] | None]
"""What plugins remember of a pod, and the nodes to which they narrow the pod, if they do."""


def identities_of(
    asked: Sequence[Identity], pods: Sequence[PodInfo], annotations: Sequence[Mapping[str, str]]
) -> list[tuple[Hashable, ...]]:
    """For each pod the number of its class and the plugins' answers to `identity`. Raises PluginError.

    A plugin that answers None for all of these pods is left out.
    """
    columns: list[list[Hashable]] = [[pod.cls.id for pod in pods]]
    at_once = list[tuple[Identity, list[Hashable] | None]]()
    for identity in asked:
        if (ask_all := identity.ask_all) is None:
            at_once.append((identity, None))
        elif (answer := ask_all(pods, annotations)) is not None:  # most plugins answer None for all pods at once
            at_once.append((identity, _at_once(identity, answer, len(pods))))
    try:
        for identity, said in at_once:
            answers = list(map(identity.ask, pods, annotations)) if said is None else said
            if answers.count(None) == len(answers):
                continue
            for answer in answers:  # what cannot be compared fails here, where the plugin is known
                hash(answer)
                bool(answer == answer)
            columns.append(answers)
    except BaseException:  # a plugin may raise anything; asking pod by pod tells which plugin has
        return [(pod.cls.id, *identity_of(asked, pod, each)) for pod, each in zip(pods, annotations, strict=True)]
    return list(zip(*columns, strict=True))


def _at_once(identity: Identity, answers: Any, pods: int) -> list[Hashable]:
    """A plugin's answer to `identity_all` for this many pods, which is not None. Raises PluginError."""
    if not isinstance(answers, list | tuple) or len(answers) != pods:
        raise identity.failures.refused(
            identity.name, "identity_all", f"must return {pods} values in a list or None, not {shown(answers)}"
        )
    return list(answers)


class Preparing:
    """What plugins have to remember of members that are placed unfiltered, because a member like them was filtered.

    Only plugins with a hook after the filters are called. A plugin with `identity` that skipped the filtered member is
    not called for the others.
    """

    def __init__(
        self,
        nodes: Nodes,
        pre_cycle: Iterable[Implementation],
        remembering: Sequence[Implementation],
        identifying: frozenset[str],
    ) -> None:
        """`remembering` are the pre-filters that are called for each attempt and have a hook after the filters;
        `identifying` names the plugins with `identity`.
        """
        self._nodes = nodes
        self._pre_cycle = [impl for impl in pre_cycle if impl.asks_for_pod]
        self._remembering = remembering
        self._identifying = identifying

    def are_plain(self, like: Filtered) -> bool:
        """Whether no plugin is asked about each of the pods that are like the filtered one.

        Then the plugins' answers for these pods do not depend on the pods that are placed before.
        """
        return not any(self._is_asked(impl, like) for impl in self._remembering)

    def _is_asked(self, impl: Implementation, like: Filtered) -> bool:
        name = impl.name
        return name not in like.entry.skipped and not (name in like.skipped and name in self._identifying)

    def prepare(self, pods: Sequence[PodInfo], like: Filtered) -> list[Prepared | None]:
        """For each pod a cycle and its nodes; None if a plugin rejects the pod as a whole. Raises PluginError."""
        for impl in self._pre_cycle:
            if impl.at_once is not None:
                impl.at_once(pods)
                continue
            quick = impl.quick
            try:
                for pod in pods:
                    quick(pod)
            except BaseException as error:  # a plugin's bug fails its group, not the scheduler
                raise impl.failures.raised(impl.name, impl.point, error) from cause_of(error)
        entry = like.entry
        if entry.rejected is not None:
            return [None] * len(pods)
        shared, skipped = entry.shared, entry.skipped
        prepared: list[Prepared | None] = [(Cycle(shared, skipped), None) for _ in pods]
        for impl in self._remembering:
            if self._is_asked(impl, like):
                self._ask(impl, pods, prepared, entry)
        return prepared

    def _ask(
        self, impl: Implementation, pods: Sequence[PodInfo], prepared: list[Prepared | None], entry: Entry
    ) -> None:
        """Call a pre-filter for the pods that no plugin has rejected."""
        quick, view = impl.quick, self._nodes.view()
        for number, (pod, done) in enumerate(zip(pods, prepared, strict=True)):
            if done is None:
                continue
            try:
                answer = quick(done[0], pod, view)
            except BaseException as error:  # a plugin's bug fails its group, not the scheduler
                raise impl.failures.raised(impl.name, impl.point, error) from cause_of(error)
            if answer is None or answer is SKIP:
                continue
            impl.check(answer)
            if isinstance(answer, Status) and answer.code is Code.SKIP_CLASS:
                entry.skipped |= {impl.name}
                for each in prepared:
                    if each is not None:
                        each[0].skipped = entry.skipped
                return
            if isinstance(answer, Narrow):
                cycle, nodes = done
                prepared[number] = cycle, answer.names if nodes is None else nodes & answer.names
            elif isinstance(answer, Status) and answer.is_rejected:
                prepared[number] = None
