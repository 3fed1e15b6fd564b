"""The reasons for which an API server refuses an update of a ResourceClaim, with the server's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_CONSUMERS = 256


def fault(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The first fault of the update from `old` to `new`; empty if there is none."""
    if old.get("spec") != new.get("spec"):
        return "spec: Invalid value: field is immutable"
    metadata = new["metadata"]
    if "deletionTimestamp" in metadata and not _in(metadata.get("finalizers"), old["metadata"].get("finalizers")):
        return "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"
    before, after = old.get("status", {}), new.get("status", {})
    consumers = after.get("reservedFor", [])
    uids = [each.get("uid") for each in consumers]
    if len(uids) > MOST_CONSUMERS:
        return f"status.reservedFor: Too many: {len(uids)}: must have at most {MOST_CONSUMERS} items"
    if twice := next((uid for number, uid in enumerate(uids) if uid in uids[:number]), None):
        return f'status.reservedFor[{uids.index(twice)}]: Duplicate value: "{twice}"'
    if uids and "allocation" not in after:
        return "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
    known = [each.get("uid") for each in before.get("reservedFor", [])]
    if "deletionTimestamp" in metadata and not _in(uids, known):
        why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        return f"status.reservedFor: Forbidden: {why}"
    if "allocation" in before and "allocation" in after and before["allocation"] != after["allocation"]:
        return "status.allocation: Invalid value: field is immutable"
    return ""


def _in(some: list[Any] | None, all_: list[Any] | None) -> bool:
    return set(some or ()) <= set(all_ or ())
