"""What is planned: which pods move from where to where, what that costs, and what it frees."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Step(msgspec.Struct, frozen=True, rename="camel"):
    """One pod is evicted from a node, and the one that its controller makes in its place goes to another."""

    namespace: str
    name: str
    uid: str
    owner: str
    """Its controller, NAMESPACE/UID; "" where it has none."""
    source: str
    destination: str
    requests: dict[str, int]
    """What it asks for, in the units of the node columns."""


class Move(msgspec.Struct, frozen=True, rename="camel"):
    """A pod on its own, or a group as a whole."""

    name: str
    """ "pod default/a" or "gang default/b"."""
    steps: list[Step]
    cost: float
    """GPU-seconds."""
    batch: int
    """Those of one number are carried out together, after all of lower ones."""


class Protected(msgspec.Struct, frozen=True):
    """A pod that stays where it is although it is in the way."""

    pod: str
    why: str


class Plan(msgspec.Struct, frozen=True, rename="camel"):
    """Moves, or why there are none."""

    goal: str
    """For what this is: "gang default/big"."""
    moves: list[Move] = []
    cost: float = 0.0
    """GPU-seconds that are done again."""
    worth: float = 0.0
    """GPU-seconds that are gained."""
    frees: list[str] = []
    """Nodes that are kept for the goal while the moves are carried out."""
    protected: list[Protected] = []
    message: str = ""
    """Why nothing is moved; "" where something is."""
    is_met: bool = False
    """Whether the goal is reached as things are."""
    group: str = ""
    """The key of the group that the nodes are for; "" for none."""
    members: list[str] = []
    """The UIDs of the pods of that group which wait."""
    needed: int = 0
    """How many of them have to get a node."""
    profile: str = ""
    """The schedulerName."""

    @property
    def steps(self) -> Sequence[Step]:
        """Those of all moves."""
        return [step for move in self.moves for step in move.steps]

    @property
    def batches(self) -> Sequence[Sequence[Move]]:
        """The moves that are carried out together, in order."""
        found: dict[int, list[Move]] = {}
        for move in self.moves:
            found.setdefault(move.batch, []).append(move)
        return list(found.values())
