"""The names and labels of leases that lock devices; all schedulers of a cluster must use the same names."""

from __future__ import annotations

import hashlib

from gangline import custom_resources

LONGEST_NAME = 253
LONGEST_LABEL = 63
_HASH = 16  # hexadecimal digits


def lease_name(node: str, id: int | None = None) -> str:
    """`gpu-NODE-ID`, or `gpu-NODE` for all devices of a node. The end of a long node name is replaced by a hash of the
    name.
    """
    end = "" if id is None else f"-{id}"
    return f"gpu-{_shortened(node, LONGEST_NAME - len('gpu-') - len(end))}{end}"


def device_of(name: str) -> tuple[str, int] | None:
    """The node and the device in a name `gpu-NODE-ID`; None if the name holds none."""
    node, _, id = name.removeprefix("gpu-").rpartition("-")
    return (node, int(id)) if node and id.isascii() and id.isdigit() else None


def lease_labels(node: str, pod: str | None = None) -> dict[str, str]:
    """The labels of a lease; `pod` is the NAMESPACE/NAME of the holder, None if there may be several."""
    labels = {custom_resources.MANAGED: "true", custom_resources.LEASE_NODE: label_value(node)}
    if pod is not None:
        namespace, _, name = pod.partition("/")
        labels |= {
            custom_resources.LEASE_POD: label_value(name),
            custom_resources.LEASE_POD_NAMESPACE: label_value(namespace),
        }
    return labels


def label_value(text: str) -> str:
    """The text, or its hash if it is too long for a label."""
    return text if len(text) <= LONGEST_LABEL else _hash(text)


def _shortened(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[: longest - _HASH - 1].rstrip('.-')}-{_hash(text)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH]
