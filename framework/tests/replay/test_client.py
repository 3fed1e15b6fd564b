"""What plugins write in a replay is answered."""

from __future__ import annotations

import asyncio

import pytest

from gangline.kube.resources import NODES, PODS
from gangline.replay.client import ReplayClient


@pytest.mark.parametrize("namespace, said", [("default", "default"), (None, "")])
def test_a_patch_is_answered_with_and_without_a_namespace(namespace: str | None, said: str) -> None:
    client = ReplayClient(lambda uid, node, annotations: None, lambda uid: None)

    found = asyncio.run(client.patch(NODES if namespace is None else PODS, "a", {}, namespace=namespace))

    assert (found.metadata.name, found.metadata.namespace) == ("a", said)
