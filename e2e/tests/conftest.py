"""Fixtures of the end-to-end tests: a running control plane, and a clean place on it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pytest
import pytest_asyncio

from gangline_e2e import binaries, processes, sources
from gangline_e2e.api import Api
from gangline_e2e.chart import Helm
from gangline_e2e.errors import NoControlPlane
from gangline_e2e.gpu_crds import install
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.processes import Process
from gangline_e2e.scheduler import Gangline
from gangline_e2e.sources import Cluster
from gangline_e2e.workloads import Manifest

if TYPE_CHECKING:
    from gangline_e2e.browser import Browser

HERE = Path(__file__).parent
StartControlPlane = Callable[[Options], ControlPlane]
StartAgent = Callable[..., Process]


class StartGangline(Protocol):
    """Start one scheduler process; more keywords are those of Gangline."""

    def __call__(self, kubeconfig: Path, config: Manifest, **options: Any) -> Gangline: ...


@pytest.fixture(scope="session")
def chromium_program() -> str:
    """The browser. Where it cannot be installed, WITHOUT_BROWSER=1 has the tests that need one skipped, in CI too."""
    from gangline_e2e.browser import find_chromium  # takes 0.1 s, and the unit tests below this folder need no browser

    program = find_chromium()
    if program is None:
        missing = "there is no chromium to look at the page: apt-get install chromium"
        if os.environ.get("CI") and not os.environ.get("WITHOUT_BROWSER"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    return program


def pytest_configure() -> None:
    """Let SIGTERM end a run as Ctrl-C does: fixtures are torn down and no server is left behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Connections to servers that are killed end when they are collected, in whatever test that happens to be."""
    ignored = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(ignored)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(chromium_program: str) -> AsyncIterator[Browser]:
    """A chromium for all stories."""
    from gangline_e2e.browser import chromium

    async with chromium(chromium_program) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def browser(started: Browser) -> AsyncIterator[Browser]:
    """A chromium whose pages must not complain of anything."""
    started.complaints.clear()
    yield started
    assert started.complaints == []


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster that all tests share; see gangline_e2e.sources for where it comes from."""
    with ExitStack() as stack:
        try:
            running = stack.enter_context(sources.cluster(tmp_path_factory.mktemp("cluster")))
        except NoControlPlane as error:
            _unavailable(error)
        yield running


@pytest.fixture
async def cluster(control_plane: Cluster) -> AsyncIterator[Api]:
    """A client of the shared cluster with a namespace of its own, swept after the test."""
    async with isolated(control_plane) as api:
        yield api


@pytest.fixture
async def api(cluster: Api) -> AsyncIterator[Api]:
    """A client of the shared cluster, which serves the custom resources."""
    await install(cluster)
    yield cluster


@pytest.fixture
def start_control_plane(tmp_path: Path) -> Iterator[StartControlPlane]:
    """A function that starts a control plane with given options, for this test alone."""
    try:
        programs = binaries.find()
    except NoControlPlane as error:
        _unavailable(error)
    with ExitStack() as stack:

        def start(options: Options) -> ControlPlane:
            folder = tmp_path / f"control-plane-{len(list(tmp_path.iterdir()))}"
            return stack.enter_context(ControlPlane(folder, options, programs))

        yield start


@pytest.fixture(scope="session")
def own_control_plane(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The shared control plane if it is our own, else one more: nothing is on it but what these tests put there."""
    if isinstance(control_plane, ControlPlane):
        yield control_plane
        return
    try:
        programs = binaries.find()
    except NoControlPlane as error:
        _unavailable(error)
    with ControlPlane(tmp_path_factory.mktemp("own"), Options(), programs) as own:
        yield own


@pytest.fixture
async def empty(own_control_plane: ControlPlane) -> AsyncIterator[Api]:
    """A client, with a namespace of its own, of a cluster without any other nodes or pods."""
    async with isolated(own_control_plane) as api:
        yield api


@pytest.fixture(scope="session")
def helm_program() -> Path:
    """The built helm."""
    try:
        return binaries.find_helm()
    except NoControlPlane as error:
        _unavailable(error)


@pytest.fixture
def helm(helm_program: Path, tmp_path: Path) -> Helm:
    """The real helm, without a cluster."""
    return Helm(helm_program, tmp_path / "helm")


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[StartAgent]:
    """A function that starts `gangline agent` with a kubeconfig and more words; none may log a traceback."""
    log = tmp_path / "agent.log"
    with ExitStack() as stack:

        def start(kubeconfig: Path, *words: str) -> Process:
            command = [sys.executable, "-m", "gangline", "agent", "--kubeconfig", str(kubeconfig), *words]
            process = processes.start("agent", command, log)
            stack.callback(processes.stop, [process], 10.0)
            return process

        yield start
    text = log.read_text() if log.is_file() else ""
    assert "Traceback" not in text, text[-10_000:]


@pytest.fixture
def start_gangline(tmp_path: Path) -> Iterator[StartGangline]:
    """A function that starts a scheduler process for this test; at the end none may have logged a traceback."""
    started: list[Gangline] = []
    with ExitStack() as stack:

        def start(kubeconfig: Path, config: Manifest, **options: Any) -> Gangline:
            scheduler = Gangline(kubeconfig, tmp_path / f"gangline-{len(started)}", config, **options)
            started.append(scheduler)
            return stack.enter_context(scheduler)

        yield start
    for scheduler in started:
        assert "Traceback" not in scheduler.logs(), scheduler.logs()[-10_000:]


def _unavailable(error: NoControlPlane) -> NoReturn:
    """Skip on a developer's machine; in CI the tests must not pass by being skipped."""
    if os.environ.get("CI"):
        pytest.fail(str(error), pytrace=False)
    pytest.skip(str(error))
