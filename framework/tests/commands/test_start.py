"""`gangline run` starts with what it needs, and nothing else."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

RUN = """
import logging, os, signal, sys
from gangline import main
from gangline.commands import run

class Program(run.RunProgram):
    def load(self):
        super().load()
        print(*sys.modules)

class End(logging.Handler):
    def emit(self, record):
        os.kill(os.getpid(), signal.SIGTERM)

run.RunProgram = Program
logging.getLogger("gangline.kube.informer").addHandler(End())
local = "127.0.0.1:0"
kubeconfig, profile = sys.argv[1:]
sys.argv = ["gangline", "run", "--kubeconfig", kubeconfig, "--listen", local, "--secure-listen", local]
sys.argv += ["--no-leader-elect", "--profile-cpu", profile]
main.main()
print(*sys.modules)
"""
"""Runs until a list is refused. Prints the modules before it has an event loop, and those at the end."""
LIBRARIES = {
    *("click", "httptools", "msgspec", "numpy", "pluggy", "prometheus_client", "tenacity", "typing_extensions"),
    *("uvloop", "yaml"),
}
"""Packages of others that it may load. Each costs CPU and memory, so think before you add one."""
COMMANDS = {"feature_gates", "old_options", "options", "output", "profiles", "reaching", "run"}
COMMANDS |= {"trying_apart", "trying_budget", "trying_lines", "trying_process"}


class Refusing(http.server.BaseHTTPRequestHandler):
    """An API server that nobody may read."""

    def do_GET(self) -> None:
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is written."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `modules` lets the program write a profile of its CPU time."""
    return tmp_path_factory.mktemp("start") / "cpu.txt"


@pytest.fixture(scope="module")
def modules(server: str, profile: Path) -> list[set[str]]:
    """The modules that `gangline run` has loaded before it has an event loop, and when it reads the cluster."""
    kubeconfig = profile.parent / "config"
    write(kubeconfig, server)
    environ = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    command = [sys.executable, "-c", RUN, str(kubeconfig), str(profile)]
    lines = subprocess.check_output(command, env=environ, text=True, timeout=60).splitlines()
    return [set(line.split()) for line in lines]


@pytest.fixture(scope="module")
def loaded(modules: list[set[str]]) -> set[str]:
    """The modules that are loaded when the cluster is read."""
    return modules[1]


def write(kubeconfig: Path, server: str) -> None:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "here", "user": {"token": "secret"}}],
    }
    kubeconfig.write_text(yaml.safe_dump(config))


@pytest.mark.usefixtures("modules")
def test_a_profile_of_the_cpu_time_is_there_when_it_has_ended(profile: Path) -> None:
    lines = profile.read_text().splitlines()

    assert any(line.startswith("MainThread;") and ";gangline.commands.run:run;" in line for line in lines)
    assert all(line.rpartition(" ")[2].isdecimal() for line in lines)


def test_libraries_that_it_does_not_need_at_once_are_not_loaded(loaded: set[str]) -> None:
    found = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names

    of_others = {name for name in found if not name.startswith(("_", "cython", "gangline"))}

    assert of_others <= LIBRARIES


def test_commands_of_other_kinds_are_not_loaded(loaded: set[str]) -> None:
    of_commands = {name.removeprefix("gangline.commands.") for name in loaded if name.startswith("gangline.commands.")}

    assert of_commands <= COMMANDS
    assert not any(name.endswith(".command") for name in loaded)
    assert not {"gangline_agent", "gangline_webhook"} & loaded


@pytest.mark.parametrize("room", ["cel", "certificates", "explain", "simulate", "testing"])
def test_rooms_that_it_does_not_need_at_once_are_not_loaded(loaded: set[str], room: str) -> None:
    assert f"gangline.{room}" not in loaded


def test_what_it_needs_is_loaded(loaded: set[str]) -> None:
    assert {"gangline.loop.scheduler", "gangline.kube.plain", "gangline_plugins.default_binder"} <= loaded


def test_no_plugin_is_imported_in_the_event_loop(modules: list[set[str]]) -> None:
    before, after = modules

    assert "gangline_plugins.dynamic_resources.plugin" in before and "gangline.page.live" in before
    assert not {name for name in after - before if name.startswith(("gangline_plugins", "gangline.page"))}
