"""An API server that is away for a while is asked again; what is wrong with a request is told at once."""

from __future__ import annotations

import aiohttp
import pytest

from gangline_chaos import asking
from gangline_e2e.errors import Refused


async def test_a_request_is_repeated_until_the_api_server_answers() -> None:
    outcomes = [aiohttp.ClientError(), TimeoutError(), Refused(503, "ServiceUnavailable", ""), "done"]

    async def ask() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    assert await asking.patiently(ask) == "done"


async def test_what_is_wrong_with_a_request_is_told_at_once() -> None:
    async def ask() -> None:
        raise Refused(404, "NotFound", "")

    with pytest.raises(Refused):
        await asking.patiently(ask)
