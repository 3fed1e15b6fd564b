"""The command line of the agent."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from gangline import main as gangline
from gangline.errors import ConfigError
from gangline_agent.main import agent

NOWHERE = {"NODE_NAME": "", "HOSTNAME": ""}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param([], "the node is not known", id="no node"),
        pytest.param(["--nodes", "a=b"], "--nodes needs --simulate", id="nodes alone"),
        pytest.param(["--node-name", "a", "--partitions"], "--partitions needs --simulate", id="partitions alone"),
        pytest.param(
            ["--node-name", "a", "--resource-slices", "--partitions"],
            "--partitions needs --simulate",
            id="no simulation",
        ),
        pytest.param(["--node-name", "a", "--resource-slices=maybe"], "--resource-slices", id="what about slices"),
        pytest.param(["--period", "0"], "--period", id="no period"),
    ],
)
def test_wrong_usage_is_said_in_one_line(words: list[str], says: str) -> None:
    result = CliRunner().invoke(agent, words, env=NOWHERE)

    assert result.exit_code == 2
    assert says in result.output.splitlines()[-1]


def test_what_cannot_be_simulated_is_an_error() -> None:
    result = CliRunner().invoke(agent, ["--simulate", "cray", "--nodes", "a=b"], env=NOWHERE)

    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("cray: is neither a file nor one of dgx-h100")


def test_the_agent_is_a_command_of_gangline() -> None:
    assert gangline.load("agent", gangline.COMMANDS["agent"]) is agent


def test_a_command_whose_package_is_missing_says_which() -> None:
    with pytest.raises(click.ClickException, match="the command agent needs the package gangline_nothing"):
        gangline.load("agent", "gangline_nothing.main:agent")
