"""`--feature-gates` takes kube-scheduler's gates by their names, and refuses others."""

from __future__ import annotations

from collections.abc import Mapping

import click
import pytest
from click.testing import CliRunner

from gangline.commands.feature_gates import DEFAULTS, EXPECTED_NODES, FEATURE_GATES


def read(*words: str) -> str:
    """What a command prints that gets its gates in these words."""

    @click.command()
    @FEATURE_GATES
    def command(gates: Mapping[str, bool]) -> None:
        click.echo(dict(gates))

    return CliRunner().invoke(command, words).output.strip()


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        ("", DEFAULTS),
        (f"{EXPECTED_NODES}=false", {EXPECTED_NODES: False}),
        (f"{EXPECTED_NODES}=False,{EXPECTED_NODES}=true", {EXPECTED_NODES: True}),
    ],
    ids=["defaults", "off", "the last one counts"],
)
def test_gates_are_on_and_off_as_they_say(text: str, gates: Mapping[str, bool]) -> None:
    assert read("--feature-gates", text) == str(dict(gates))


@pytest.mark.parametrize(
    ("text", "why"),
    [("Other=true", "there is no gate 'Other'"), (EXPECTED_NODES, "is true or false, not ''")],
    ids=["unknown", "no value"],
)
def test_what_is_no_gate_is_refused(text: str, why: str) -> None:
    assert why in read("--feature-gates", text)
