"""All extenders of a configuration: calls the extenders that manage a pod, and returns their answers.

If an extender fails, that is an ExtenderError; an ignorable extender is left out instead, with a line in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

import msgspec

from gangline.api.cycle_state import Cycle
from gangline.api.proposal import Victims
from gangline.config import Extender
from gangline.errors import ApiError, ExtenderError
from gangline.extenders import deciding, wire
from gangline.extenders.asking import Asker
from gangline.extenders.deciding import Verdicts
from gangline.extenders.endpoint import Endpoint, endpoint_of
from gangline.kube.interface import Client
from gangline.kube.resources import PODS
from gangline.model import Node
from gangline.state.nodes import Nodes
from gangline.state.pods import PodClass, PodInfo
from gangline.status import SUCCESS, Code, Status

log = logging.getLogger(__name__)

T = TypeVar("T")


class Extenders:
    """All extenders of a configuration. Raises ConfigError if certificates cannot be used."""

    def __init__(self, configured: Sequence[Extender], asker: Asker, client: Client) -> None:
        self._known: WeakKeyDictionary[PodClass, list[Endpoint]] = WeakKeyDictionary()
        """The extenders that manage the pods of a class."""
        self._endpoints = [
            endpoint_of(extender, f"extenders[{place}]") for place, extender in deciding.in_order(configured)
        ]
        self._asker = asker
        self._client = client

    def decide_on(self, pod: PodInfo) -> bool:
        """Whether an extender has a say in the pod's node or in the victims of its preemption."""
        return any(e.filter_verb or e.prioritize_verb or e.preempt_verb for e in self._configs(pod))

    def review_preemption_of(self, pod: PodInfo) -> bool:
        """Whether an extender has a say in the victims of the pod's preemption."""
        return any(e.preempt_verb for e in self._configs(pod))

    async def filter(self, pod: PodInfo, nodes: Mapping[str, Node]) -> Verdicts:
        """The nodes that the extenders leave; each extender is asked about the nodes that are left by then."""
        verdicts = Verdicts(list(nodes), {})
        for endpoint in self._of(pod):
            if not verdicts.passed:
                break
            extender = endpoint.extender
            if not extender.filter_verb:
                continue
            try:
                args = _args(extender, pod, {name: nodes[name] for name in verdicts.passed})
                answer = await self._ask(endpoint, extender.filter_verb, args, _filter_result)
                verdicts = verdicts.after(extender, answer)
            except ExtenderError as error:
                _skip(extender, pod, error)
        return verdicts

    async def prioritize(self, pod: PodInfo, nodes: Mapping[str, Node]) -> list[dict[str, float]]:
        """What each extender adds to the scores of these nodes; all are called at once. A failed one adds nothing."""
        return await asyncio.gather(*(self._scores(e, pod, nodes) for e in self._of(pod) if e.extender.prioritize_verb))

    async def review(self, pod: PodInfo, candidates: Mapping[str, Victims], nodes: Nodes) -> Mapping[str, Victims]:
        """The candidates for a preemption that the extenders leave, perhaps with other victims."""
        for endpoint in self._of(pod):
            extender = endpoint.extender
            if not candidates:
                break
            if not extender.preempt_verb:
                continue
            try:
                args = _preemption_args(extender, pod, candidates)
                answer = await self._ask(endpoint, extender.preempt_verb, args, wire.decode_victims)
                candidates = deciding.reviewed(extender, answer, nodes)
            except ExtenderError as error:
                _skip(extender, pod, error)
        return candidates

    async def bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Let the extender that binds the pod do so; None leaves the pod to the bind plugins.

        An extender does not know the annotations that plugins want set with the binding, so they are written before the
        extender is asked.
        """
        for endpoint in self._of(pod):
            extender = endpoint.extender
            if not extender.bind_verb:
                continue
            try:
                if cycle.annotations:
                    await self._annotate(pod, cycle.annotations)
                args = wire.ExtenderBindingArgs(pod.name, pod.namespace, pod.uid, node)
                answer = await self._ask(endpoint, extender.bind_verb, args, _binding_result)
                if answer.error:
                    raise ExtenderError(extender.url_prefix, extender.bind_verb, answer.error)
                return SUCCESS
            except ApiError as error:
                return Status(Code.ERROR, (str(error),))
            except ExtenderError as error:
                if not extender.ignorable:
                    return Status(Code.ERROR, (str(error),))
                _skip(extender, pod, error)
        return None

    async def _annotate(self, pod: PodInfo, annotations: Mapping[str, str]) -> None:
        patch = {"metadata": {"uid": pod.uid, "annotations": dict(annotations)}}
        await self._client.patch(PODS, pod.name, patch, namespace=pod.namespace)

    async def _scores(self, endpoint: Endpoint, pod: PodInfo, nodes: Mapping[str, Node]) -> dict[str, float]:
        extender = endpoint.extender
        try:
            args = _args(extender, pod, nodes)
            answer = await self._ask(endpoint, extender.prioritize_verb, args, wire.decode_priorities)
        except ExtenderError as error:  # as in kube-scheduler, the other scores decide then
            log.warning("pod %s: no scores: %s", pod.key, error)
            return {}
        return deciding.weighted(extender, answer)

    async def _ask(self, endpoint: Endpoint, verb: str, args: wire.Sent, decode: Callable[[bytes], T]) -> T:
        body = await self._asker.ask(endpoint, verb, wire.encode(args))
        try:
            return decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ExtenderError(endpoint.url, verb, f"answered what cannot be read: {error}") from error

    def _configs(self, pod: PodInfo) -> list[Extender]:
        return [endpoint.extender for endpoint in self._of(pod)]

    def _of(self, pod: PodInfo) -> list[Endpoint]:
        """The extenders that manage the pod, in order; the same for all pods of its class."""
        found = self._known.get(pod.cls)
        if found is None:
            found = self._known[pod.cls] = [e for e in self._endpoints if deciding.looks_after(e.extender, pod)]
        return found


def _skip(extender: Extender, pod: PodInfo, error: ExtenderError) -> None:
    """Leave out an ignorable extender that has failed. Raises the error for any other extender."""
    if not extender.ignorable:
        raise error
    log.warning("pod %s: skipped an extender that is ignorable: %s", pod.key, error)


def _args(extender: Extender, pod: PodInfo, nodes: Mapping[str, Node]) -> wire.ExtenderArgs:
    if extender.node_cache_capable:
        return wire.ExtenderArgs(wire.pod_object(pod), node_names=list(nodes))
    return wire.ExtenderArgs(wire.pod_object(pod), nodes=wire.NodeList(list(nodes.values())))


def _preemption_args(
    extender: Extender, pod: PodInfo, candidates: Mapping[str, Victims]
) -> wire.ExtenderPreemptionArgs:
    if extender.node_cache_capable:
        by_uid = {
            node: wire.MetaVictims([wire.MetaPod(p.uid) for p in victims.pods], victims.violations)
            for node, victims in candidates.items()
        }
        return wire.ExtenderPreemptionArgs(wire.pod_object(pod), node_name_to_meta_victims=by_uid)
    whole = {
        node: wire.VictimObjects([wire.pod_object(p) for p in victims.pods], victims.violations)
        for node, victims in candidates.items()
    }
    return wire.ExtenderPreemptionArgs(wire.pod_object(pod), node_name_to_victims=whole)


def _filter_result(body: bytes) -> wire.ExtenderFilterResult:
    return wire.decode(body, wire.ExtenderFilterResult)


def _binding_result(body: bytes) -> wire.ExtenderBindingResult:
    return wire.decode(body, wire.ExtenderBindingResult)
