"""Which nodes have devices for the claims of a pod that have none yet, and why the others do not.

The claim for extended resources depends on the node. Nodes on which devices have to serve the same of these resources
have one *pattern*, and are asked about together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gangline import (
    BoolColumn,
    CodeColumn,
    Deadline,
    Int64Column,
    InvalidObject,
    NodeView,
    PodInfo,
    Rows,
    ScoreColumn,
)
from gangline.dra.asked import Asked
from gangline.dra.questions import FEW_DEVICES, FIRST_TEXT, SEES_INVALID
from gangline.dra.weighing import Chosen
from gangline_plugins.dynamic_resources.claims import Claims
from gangline_plugins.dynamic_resources.ledger import Ledger
from gangline_plugins.dynamic_resources.preferring import has_alternatives, preferences, thrift

ELSEWHERE = 1
"""The code of a node on which the devices of a claim cannot be used."""
OTHERS_HAVE = 2
"""The code of a node that has the devices once other claims give theirs back."""
OTHERS_HAVE_BESIDE_INVALID = 3
"""As `OTHERS_HAVE`, and some pool of the node contradicts itself."""
MAY_COME_FREE = frozenset((OTHERS_HAVE, OTHERS_HAVE_BESIDE_INVALID))
"""The codes of nodes on which other claims may give devices back."""
_SHIFT = OTHERS_HAVE_BESIDE_INVALID
"""The codes of `Devices` follow, shifted by this number."""
FIRST_ERROR = _SHIFT + FIRST_TEXT
"""Codes from here on stand for errors."""
_MOST_TEXTS = 250
"""At most this many codes of errors for the nodes of one pattern."""
_MOST_PATTERNS = 250
"""At most this many patterns of one pod are told apart in errors."""
_MANY = 2**31
"""More pods than any node has room for."""


@dataclass(slots=True, eq=False)
class Need:
    """What pods of one identity need of a node."""

    own: Claims
    """Claims without devices that no other member of a gang uses: claims that were made for the pod, and, for a pod in
    no gang, claims that it names. Other pods of the identity have claims with the same specs.
    """
    named: Claims
    """All other claims: whether they have devices is looked up whenever a node is judged."""
    pod: PodInfo | None = None
    """The pod, if devices serve extended resources that it requests; which resources, may differ from node to node."""
    left: Claims = field(default_factory=list)
    """Claims for the pod's extended resources that an earlier attempt has left behind."""
    asked: list[Asked | None] = field(default_factory=list)
    """For each pattern the last question about the claims without devices; None if there was none."""
    patterns: dict[int, int] = field(default_factory=dict)
    """The place in `asked` of the question for each pattern of extended resources."""
    problem: str = ""
    priority: int | None = None
    """Pods of a lower priority than this may be removed and give back their devices; if None, pods of any priority."""


class Judge:
    """Asks the columns of devices about nodes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._devices = ledger.devices
        self._extended = ledger.extended

    def lacking(self, need: Need) -> Claims:
        """The claims of the need, without those for extended resources, that have no devices now."""
        return need.own + [each for each in need.named if self._ledger.allocation(each.metadata.uid) is None]

    def codes(self, need: Need, nodes: NodeView, within: Deadline | None) -> CodeColumn:
        """For each node of the view: 0 if all claims without devices get devices there, else a code for `reason`."""
        codes = np.zeros(len(nodes), dtype=np.uint16)
        need.problem = ""
        for place, mask, claims in self._questions(need, nodes):
            view = nodes if mask is None else nodes.at(nodes.rows[mask])
            codes[slice(None) if mask is None else mask] = self._judge(need, place, claims, view, within)
        return codes

    def reason(self, need: Need, code: int, lacking: Claims) -> str:
        """The message of a code above `ELSEWHERE`, given the claims that lack devices; "" if no question was asked."""
        if code <= _SHIFT:
            code = SEES_INVALID if code == OTHERS_HAVE_BESIDE_INVALID else FEW_DEVICES
        else:
            code -= _SHIFT
        place = 0
        if code >= FIRST_TEXT:
            place, text = divmod(code - FIRST_TEXT, _MOST_TEXTS)
            code = FIRST_TEXT + text
        asked = need.asked[place] if place < len(need.asked) else None
        asked = asked or next((each for each in need.asked if each is not None), None)
        if need.problem or asked is None:
            return need.problem
        kind = next((kind for kind, number in need.patterns.items() if number == place), 0)
        return self._devices.reason(asked, code, self._with_extended(need, lacking, kind))

    def room(self, need: Need, nodes: NodeView, within: Deadline) -> Int64Column | None:
        """At most how many pods with such claims of their own fit on each node; None if that is not known.

        Claims that pods share are given devices once, for all of them.
        """
        room = np.full(len(nodes), _MANY, dtype=np.int64)
        for _, mask, claims in self._questions(need, nodes, need.own):
            try:
                found = self._devices.room(self._devices.asked(claims), nodes, within)
            except InvalidObject:
                continue  # these nodes have been rejected
            if found is None:
                return None
            room = found if mask is None else np.where(mask, found, room)
        return room

    def preferences(self, need: Need, nodes: NodeView, within: Deadline) -> ScoreColumn:
        """For each node how well the devices that the claims would get there meet the preferences of these claims.

        0 for nodes for which no time is left.
        """
        scores = np.zeros(len(nodes))
        for _, mask, claims in self._questions(need, nodes):
            for chosen, places in self._choices(claims, mask, nodes, within):
                scores[places] = preferences(claims, chosen)
        return scores

    def merits(self, need: Need, nodes: NodeView, within: Deadline) -> ScoreColumn:
        """As `preferences`, plus up to 1: the less other claims lose by the devices that would be given, the more."""
        preferred, losses = np.zeros(len(nodes)), np.zeros(len(nodes))
        for _, mask, claims in self._questions(need, nodes):
            try:
                asked = self._devices.asked(claims)
                if not has_alternatives(claims):
                    lost = self._devices.losses(asked, nodes, deadline=within)
                    losses = lost if mask is None else np.where(mask, lost, losses)
                    continue
            except InvalidObject:
                continue  # these nodes have been rejected
            for chosen, places in self._choices(claims, mask, nodes, within):
                preferred[places] = preferences(claims, chosen)
                losses[places] = self._devices.losses(asked, nodes.at(nodes.rows[places]), chosen, within)
        merits: ScoreColumn = preferred + thrift(losses)
        return merits

    def _choices(
        self, claims: Claims, mask: BoolColumn | None, nodes: NodeView, within: Deadline
    ) -> Iterator[tuple[Chosen, NDArray[np.int64]]]:
        """Which alternatives claims get on the nodes that have something for all of them, with the places of nodes."""
        try:
            found = self._devices.choices(self._devices.asked(claims), nodes, within)
        except InvalidObject:
            return  # these nodes have been rejected
        for chosen, places in found:
            yield chosen, places if mask is None else places[mask[places]]

    def _judge(
        self, need: Need, place: int, claims: Claims, nodes: NodeView, within: Deadline | None
    ) -> CodeColumn | int:
        try:
            asked = need.asked[place] = self._devices.asked(claims)
            found = self._devices.codes(asked, nodes, within).astype(np.uint16)
        except InvalidObject as error:
            need.problem = str(error)
            return FEW_DEVICES + _SHIFT
        if not found.any():
            return found
        found[found >= FIRST_TEXT] += place * _MOST_TEXTS
        few = ((found == FEW_DEVICES) | (found == SEES_INVALID)).nonzero()[0]
        found[found > 0] += _SHIFT
        if len(few):
            few = few[self._may_go(need, nodes.rows[few])]
            few = few[self._devices.may_have(asked, nodes.rows[few], within)]
            are_few = found[few] == FEW_DEVICES + _SHIFT
            found[few] = np.where(are_few, OTHERS_HAVE, OTHERS_HAVE_BESIDE_INVALID)
        return found

    def _may_go(self, need: Need, rows: Rows) -> BoolColumn:
        """For each of these rows whether it has pods with claims that may be removed for the pod."""
        if need.priority is None:
            return np.ones(len(rows), dtype=np.bool_)
        found = self._ledger.levels.below_on(need.priority, rows)
        twins = self._ledger.twins
        return found if twins is None else found | np.array(twins.are_on(rows.tolist()), dtype=np.bool_)

    def _questions(
        self, need: Need, nodes: NodeView, lacking: Claims | None = None
    ) -> Iterator[tuple[int, BoolColumn | None, Claims]]:
        """The questions to ask: the place of each in `Need.asked`, a mask of the nodes (None for all), and the claims.

        The claims are those in `lacking`, by default all claims without devices.
        """
        lacking = self.lacking(need) if lacking is None else lacking
        if need.pod is None:
            need.asked = need.asked or [None]
            if lacking:
                yield 0, None, lacking
            return
        patterns = self._extended.patterns(need.pod, nodes)
        kinds = np.unique(patterns).tolist()
        for kind in kinds:
            place = min(need.patterns.setdefault(kind, len(need.patterns)), _MOST_PATTERNS)
            need.asked += [None] * (place + 1 - len(need.asked))
            if claims := self._with_extended(need, lacking, kind):
                yield place, patterns == kind if len(kinds) > 1 else None, claims

    def _with_extended(self, need: Need, claims: Claims, kind: int) -> Claims:
        """These claims, and the claim for the pod's extended resources on nodes of a pattern, if there is one."""
        extended = self._extended.of(need.pod, kind) if need.pod is not None else None
        return claims if extended is None else [*claims, extended]
