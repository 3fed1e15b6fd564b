"""The page of a small cluster, served."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gangline.remedies import Remedies, Remedy, RemedyCost, RemedyKind
from gangline.remedies.showing import ShownRemedies
from gangline.testing import make_pod

from .served_page import ServedPage


@pytest.fixture
async def served() -> AsyncIterator[ServedPage]:
    made = ServedPage()
    await made.served.open()
    yield made
    made.feed.close()
    await made.served.close()


@pytest.fixture
async def waiting(served: ServedPage) -> ServedPage:
    """A pod of the namespace one waits, and would start if a pod of the namespace two ended."""
    served.shown.wait(make_pod("w", gpus=8, namespace="one"))
    values = {"level": "node", "domain": "n", "gpus": 1, "amounts": {}, "pods": ["two/q"]}
    remedy = Remedy(RemedyKind.FREE_ROOM, "Wait until ..., for example when pod two/q ends.", values, RemedyCost(1))
    served.remedies["pod-one-w"] = ShownRemedies(Remedies("pod one/w", (remedy,), 1))
    return served
