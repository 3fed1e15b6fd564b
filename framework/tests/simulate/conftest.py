"""A cluster in memory with its clock and a client."""

from __future__ import annotations

import pytest

from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def server(clock: VirtualClock) -> InMemoryServer:
    return InMemoryServer(clock)


@pytest.fixture
def client(server: InMemoryServer) -> SimulatedClient:
    return SimulatedClient(server)
