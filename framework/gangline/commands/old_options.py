"""Options of other schedulers that `gangline run` does not have: the error for each says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_INSTEAD = {
    "--scheduler-name": "set SCHEDULER_NAME={0}, or schedulerName: {0} in a profile of --config",
    "--master": "name the API server in a kubeconfig, as clusters[].cluster.server: {0}, and give it with --kubeconfig",
    "--v": "use --log-level: debug for 4 and more, info for less",
}


def add_to(command: Command) -> Command:
    """Add these options to a command, hidden from its help. An option with an empty value is ignored."""
    for name in _INSTEAD:
        names = (name, "-v") if name == "--v" else (name,)
        command = click.option(*names, hidden=True, expose_value=False, callback=_answer)(command)
    return command


def _answer(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value:
        name = parameter.opts[0]
        raise click.UsageError(f"there is no {name}: {_INSTEAD[name].format(value)}")
