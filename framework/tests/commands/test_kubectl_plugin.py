"""`kubectl gangline`, the completion of shells, and versions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from gangline import main
from gangline.commands.completion import for_kubectl
from gangline.kube.resources import CONFIG_MAPS
from gangline.model import ConfigMap, ObjectMeta

from ..invoking import invoked
from .cluster_over_http import ClusterOverHttp

BIN = Path(sys.executable).parent
SHELLS = ["bash", "zsh", "fish"]


def completed(shell: str, line: str) -> str:
    """What a shell's script is told about a line whose last word is not complete."""
    words = line.split(" ")
    environ = {"_GANGLINE_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    if shell == "fish":
        environ["COMP_CWORD"] = words[-1]
    return CliRunner().invoke(main.cli, [], env=environ, prog_name="gangline").stdout


def test_the_plugin_of_kubectl_is_the_same_program_and_says_how_it_is_called() -> None:
    found = subprocess.run(
        [BIN / "kubectl-gangline", "plugins", "--help"], capture_output=True, text=True, timeout=60, check=True
    )

    assert found.stdout.startswith("Usage: kubectl gangline plugins [OPTIONS]")


def test_kubectl_is_told_the_commands_and_that_no_file_is_meant() -> None:
    found = subprocess.run(
        [BIN / "kubectl_complete-gangline", "st"], capture_output=True, text=True, timeout=60, check=True
    )

    assert found.stdout == f"status\t{main.SUMMARIES['status']}\n:4\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["defrag", "pl"], ["plan\tShow what would be moved, and what that costs.", ":4"]),
        (["status", "-o", "wi"], ["wide", ":4"]),
        (["run", "--config", "x"], [":0"]),
        ([], [*sorted({*main.COMMANDS, *main.added()}), ":4"]),
    ],
    ids=["command", "choice", "file", "nothing"],
)
def test_kubectl_completes_commands_options_and_files(words: list[str], expected: list[str]) -> None:
    found = [line if line.startswith("plan") else line.partition("\t")[0] for line in for_kubectl(main.cli, words)]

    assert found == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_asks_the_program(shell: str) -> None:
    script = invoked("completion", shell)

    assert f"_GANGLINE_COMPLETE={shell}_complete" in script and "_gangline_completion" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_script_for_bash_can_be_read_by_bash() -> None:
    subprocess.run(["bash", "-n"], input=invoked("completion", "bash"), text=True, timeout=60, check=True)


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_and_options_are_completed(shell: str) -> None:
    assert "topology" in completed(shell, "gangline top")
    assert "--all-namespaces" in completed(shell, "gangline status --all")


def test_another_shell_is_wrong_usage() -> None:
    assert CliRunner().invoke(main.cli, ["completion", "tcsh"]).exit_code == 2


def test_commands_are_completed_without_being_imported() -> None:
    code = (
        "import sys; from gangline import main; from gangline.commands.completion import for_kubectl; "
        "list(for_kubectl(main.cli, [''])); sys.exit('gangline.commands.status' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


# Versions


async def test_the_versions_of_the_program_the_server_and_the_scheduler(lab: ClusterOverHttp) -> None:
    labels = {"app.kubernetes.io/name": "gangline", "app.kubernetes.io/component": "scheduler"}
    meta = ObjectMeta(name="config", namespace="gpu", labels={**labels, "app.kubernetes.io/version": "0.9.0"})
    lab.add(CONFIG_MAPS, ConfigMap(meta, {}))

    text = await lab.said("version")
    found = msgspec.json.decode(await lab.said("version", "-o", "json"))

    assert text == f"Client Version: {version('gangline')}\nServer Version: v1.36.2\nScheduler Version: 0.9.0\n"
    assert found == {"client": version("gangline"), "server": "v1.36.2", "scheduler": "0.9.0"}


async def test_without_a_server_the_own_version_is_shown_and_the_failure_told(lab: ClusterOverHttp) -> None:
    lab.write_kubeconfig(server="http://127.0.0.1:9")

    result = await lab.run("version")

    assert result.stdout.startswith(f"Client Version: {version('gangline')}\nServer Version: not known\n")
    assert "no API server answers: Connection refused" in str(result.exception)


async def test_the_own_version_alone_needs_no_server(lab: ClusterOverHttp) -> None:
    lab.write_kubeconfig(server="http://127.0.0.1:9")

    assert await lab.said("version", "--client") == f"Client Version: {version('gangline')}\n"
