"""Why a node cannot meet a want: the verdicts of GpuClaim and their reasons."""

from __future__ import annotations

from enum import IntEnum

from gangline import Reason


class Why(IntEnum):
    """The verdicts in order of precedence, each with its reason."""

    reason: Reason

    def __new__(cls, code: int, message: str, resolvable: bool = False) -> Why:
        why = int.__new__(cls, code)
        why._value_ = code
        why.reason = Reason(message, resolvable)
        return why

    UNREPORTED = 1, "node(s) didn't report their GPUs"
    UNUSABLE = 2, "node(s) had a GpuNodeStatus that cannot be used"
    SELECTOR = 3, "node(s) didn't match the claim's selector"
    STALE = 4, "node(s) had GPUs of unknown state, not reported on for too long"
    SHARING = 5, "node(s) shared out their GPUs by time-slicing or MPS"
    ONE_REPLICA = 6, "node(s) gave no pod more than one replica of a shared GPU"
    COUNT = 7, "node(s) didn't have enough GPUs"
    HEALTH = 8, "node(s) didn't have enough healthy GPUs"
    PROFILE = 9, "node(s) didn't have enough MIG instances of the profile"
    TOO_SMALL = 10, "node(s) didn't have GPUs with enough memory"
    LINKS = 11, "node(s) didn't have GPUs linked as the claim requires"
    RDMA = 12, "node(s) didn't have RDMA"
    PORTS = 13, "node(s) didn't have enough RDMA ports"
    CU_FILE = 14, "node(s) didn't have cuFile"
    BUSY = 15, "node(s) didn't have enough free GPUs", True
    NO_ROOM = 16, "node(s) didn't have enough room on shared GPUs", True
    NO_INSTANCE = 17, "node(s) didn't have enough free MIG instances of the profile", True
    LINKS_BUSY = 18, "node(s) didn't have free GPUs linked as the claim requires", True


REASONS = tuple(why.reason for why in Why)
"""The reasons by filter code: code 1 is the first."""
