"""The command line: `gangline COMMAND`; each command is an object of a module, here or in another component.

Distributions add commands by entry points in the group `gangline.commands`; an added command cannot replace a built-in
one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

import click

from gangline.errors import GanglineError
from gangline.process.lines import Lines
from gangline.process.memory import nothing_collected
from gangline.process.version import version_option

COMMANDS = {
    "agent": "gangline_agent.main:agent",
    "certs": "gangline.commands.certs:certs",
    "config": "gangline.commands.config:config",
    "explain": "gangline.commands.explain:explain",
    "plugins": "gangline.commands.plugins:plugins",
    "profiles": "gangline.commands.profiles:group",
    "run": "gangline.commands.run:run",
    "simulate": "gangline.commands.simulate:simulate",
    "status": "gangline.commands.status:status",
    "topology": "gangline.commands.topology:topology",
    "webhook": "gangline_webhook.main:webhook",
}
"""Name to module and object; a module is imported only when its command is used, so that `--help` is quick."""
SUMMARIES = {
    "agent": "Publish the GPUs of this node.",
    "certs": "Make and rotate the certificates of the webhook.",
    "config": "Check, convert or show KubeSchedulerConfiguration files.",
    "explain": "Spell out one decision: per node and plugin the verdict, reason and score.",
    "plugins": "List plugins, or start a new one.",
    "profiles": "List the profiles that can be chosen by name.",
    "run": "Schedule the pods of a cluster.",
    "simulate": "Schedule the pods of manifests on a cluster in memory.",
    "status": "Show the cluster, the gangs and what waits, at a glance.",
    "topology": "Draw the domains of the network, their nodes and their GPUs.",
    "webhook": "Serve admission reviews.",
}
"""The summary of each command in `--help`."""
_WIDEST = 100
"""Characters of a command's summary, at most."""


@cache
def added() -> Mapping[str, EntryPoint]:
    """The commands that distributions add, by name."""
    return {each.name: each for each in entry_points(group="gangline.commands") if each.name not in COMMANDS}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *added()})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _summary(name)) for name in self.list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = COMMANDS.get(cmd_name) or (added()[cmd_name].value if cmd_name in added() else None)
        return load(cmd_name, where) if where is not None else None


def _summary(name: str) -> str:
    """The summary of a command in `--help`; a command of another distribution is imported for it."""
    if name in SUMMARIES:
        return SUMMARIES[name]
    try:
        return load(name, added()[name].value).get_short_help_str(_WIDEST)
    except click.ClickException as error:
        return f"Cannot be used: {error.message}"


def load(name: str, where: str) -> click.Command:
    """The command at MODULE:OBJECT; ClickException if it cannot be imported, or is no command."""
    module, _, attribute = where.partition(":")
    try:
        with nothing_collected():
            command = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        why = f"the command {name} needs the package {error.name}, which is not installed"
        raise click.ClickException(why) from error
    except Exception as error:  # of another distribution
        raise click.ClickException(f"the command {name} cannot be loaded from {where}: {error!r}") from error
    if not isinstance(command, click.Command):
        raise click.ClickException(f"the command {name} is no click.Command at {where}")
    return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@version_option("gangline")
def cli() -> None:
    """Gangline schedules GPU workloads on Kubernetes."""


def main() -> None:
    """Run a command: exit 0 on success, 1 with one line on a failure, 2 on wrong usage."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.UsageError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(1)
    except GanglineError as error:
        Lines(sys.stderr).write(f"gangline: {error}")  # nobody may read it, and the process has to end
        sys.exit(error.exit_code)
