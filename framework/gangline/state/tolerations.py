"""Whether a pod tolerates a taint; used for taints, topology spread and unschedulable nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gangline.model import Toleration
from gangline.state.labels import parse_integer
from gangline.state.taints import TaintKey

_DECIMAL = re.compile(r"0|-?[1-9][0-9]*")
UNSCHEDULABLE_TAINT = TaintKey("node.kubernetes.io/unschedulable", "", "NoSchedule")


def tolerates(toleration: Toleration, taint: TaintKey, numeric: bool = False) -> bool:
    """Whether a toleration matches a taint; `numeric` allows the operators Gt and Lt."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator
    if operator in ("", "Equal"):
        return toleration.value == taint.value
    if operator == "Exists":
        return True
    if operator in ("Gt", "Lt") and numeric:
        wanted, has = _decimal(toleration.value), _decimal(taint.value)
        if wanted is None or has is None:
            return False
        return has > wanted if operator == "Gt" else has < wanted
    return False


def untolerated(
    taints: Iterable[TaintKey],
    tolerations: Sequence[Toleration],
    effects: Sequence[str] = ("NoSchedule", "NoExecute"),
    numeric: bool = False,
) -> TaintKey | None:
    """The first taint with one of these effects that no toleration matches."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(t, taint, numeric) for t in tolerations):
            return taint
    return None


def _decimal(text: str) -> int | None:
    """A whole number in its one decimal form: no plus sign, no leading zero."""
    return parse_integer(text) if _DECIMAL.fullmatch(text) else None
