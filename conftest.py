"""What every test of the repository shares."""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from unittest.mock import patch

import pytest
from hypothesis import Phase, is_hypothesis_test, settings
from hypothesis import strategies as st

from gangline.commands import profiles
from gangline.profile import registry

# A machine that is busy is no reason for a test to fail. Random examples are for those who look for bugs: in CI every
# run tries the same ones, so that a change is judged by what it changes, and more of them than the inner loop does. A
# test whose examples take long asks for a part of this number. A failure is not explained line by line: tracing takes
# minutes where a whole scheduler runs.
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)
settings.register_profile("quick", deadline=None, max_examples=6, phases=PHASES)
settings.register_profile("thorough", deadline=None, max_examples=100, derandomize=True, phases=PHASES)
settings.load_profile("thorough" if os.environ.get("CI") else "quick")

pytest_plugins = ("gangline_e2e.forked_tests", "gangline_e2e.forked_programs")

# New objects are looked at more often than in the scheduler, where most objects stay: what a test leaves is garbage,
# and costs the least while it is in the caches of the processor. Objects that survive are looked at again when their
# test has ended.
gc.set_threshold(20_000, 60, 100)


@pytest.fixture(scope="session", autouse=True)
def _installed_plugins() -> Iterator[None]:
    """What is installed is looked up once for each path of imports: it takes as long as a story of some pods."""

    @cache
    def found(group: str, path: tuple[str, ...]) -> EntryPoints:
        return entry_points(group=group)

    def looked_up(group: str) -> EntryPoints:
        return found(group, tuple(sys.path))

    with patch.object(registry, "entry_points", looked_up), patch.object(profiles, "entry_points", looked_up):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What the thousands of collected tests consist of stays: the collector never walks it, not even once at the end,
    because the little garbage among it costs less than the walk.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Processes that are forked share the table of all characters. In a fresh clone it takes each a second to make."""
    is_used = any(is_hypothesis_test(getattr(item, "obj", None)) for item in session.items)
    if is_used and session.config.getoption("processes"):
        st.text().validate()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """What a test leaves is collected once, when the test has ended, and what stays is never looked at again.

    So nobody pays for what tests before have left, neither a test that collects nor the collector; and garbage that
    complains, as an open socket does, fails the next test at the latest, not any later one or none.
    """
    try:
        return (yield)
    finally:
        gc.collect(1)
        gc.freeze()
