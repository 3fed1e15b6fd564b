"""A plan: which pods move from which node to which, what the moves cost, and which nodes they free."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class MoveStep(msgspec.Struct, frozen=True, rename="camel"):
    """One pod is evicted from a node, and the replacement that its controller creates goes to another node."""

    namespace: str
    name: str
    uid: str
    owner: str
    """The pod's controller, NAMESPACE/UID; "" if it has none."""
    source: str
    destination: str
    requests: dict[str, int]
    """The pod's requests, in the units of the node columns."""


class Move(msgspec.Struct, frozen=True, rename="camel"):
    """The move of a single pod, or of a whole group."""

    name: str
    """ "pod default/a" or "gang default/b"."""
    steps: list[MoveStep]
    cost: float
    """GPU-seconds."""
    batch: int
    """Moves with the same number are carried out together, after all moves with lower numbers."""


class Protected(msgspec.Struct, frozen=True):
    """A pod that stays on its node although moving it would help, and why it stays."""

    pod: str
    why: str


class MovePlan(msgspec.Struct, frozen=True, rename="camel"):
    """The moves, or why there are none."""

    goal: str
    """The gang or domains for which the moves make room, for example "gang default/big"."""
    moves: list[Move] = []
    cost: float = 0.0
    """GPU-seconds of work that have to be repeated."""
    worth: float = 0.0
    """GPU-seconds that are gained."""
    frees: list[str] = []
    """Nodes that are kept for the goal while the moves are carried out."""
    protected: list[Protected] = []
    message: str = ""
    """Why nothing is moved; "" if there are moves."""
    is_met: bool = False
    """Whether the goal is reached without any move."""
    group: str = ""
    """The key of the group that the nodes are for; "" if there is none."""
    members: list[str] = []
    """The UIDs of the group's waiting pods."""
    needed: int = 0
    """How many of these pods have to get a node."""
    profile: str = ""
    """The schedulerName."""

    @property
    def steps(self) -> Sequence[MoveStep]:
        """The steps of all moves."""
        return [step for move in self.moves for step in move.steps]

    @property
    def batches(self) -> Sequence[Sequence[Move]]:
        """The moves in order, grouped by batch."""
        found: dict[int, list[Move]] = {}
        for move in self.moves:
            found.setdefault(move.batch, []).append(move)
        return list(found.values())
