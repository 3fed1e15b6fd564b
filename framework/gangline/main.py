"""The command line: `gangline COMMAND`; each command is an object of a module, here or in another component.

Distributions add commands by entry points in the group `gangline.commands`; an added command cannot replace a built-in
one.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

import click
from click.shell_completion import CompletionItem

from gangline.errors import GanglineError
from gangline.process import interrupting
from gangline.process.lines import Lines, on_one_line, write_any_text
from gangline.process.memory import nothing_collected
from gangline.process.version import version_option

COMMANDS = {
    "agent": "gangline_agent.main:agent",
    "certs": "gangline.commands.certs:certs",
    "completion": "gangline.commands.completion:completion",
    "config": "gangline.commands.config:config",
    "explain": "gangline.commands.explain:explain",
    "plugins": "gangline.commands.plugins:plugins",
    "profiles": "gangline.commands.profiles:group",
    "replay": "gangline.commands.replay:replay",
    "run": "gangline.commands.run:run",
    "simulate": "gangline.commands.simulate:simulate",
    "snapshot": "gangline.commands.snapshot:snapshot",
    "status": "gangline.commands.status:status",
    "topology": "gangline.commands.topology:topology",
    "ui": "gangline.commands.ui:ui",
    "version": "gangline.commands.version:version",
    "webhook": "gangline_webhook.main:webhook",
    "whatif": "gangline.commands.whatif:whatif",
}
"""Name to module and object; a module is imported only when its command is used, so that `--help` is quick."""
SUMMARIES = {
    "agent": "Publish the GPUs of this node.",
    "certs": "Create and renew the certificates of the webhook.",
    "completion": "Print a script for the completion of a shell.",
    "config": "Check, convert or show KubeSchedulerConfiguration files.",
    "explain": "Say why a pod is on its node or waits, and what would let it start.",
    "plugins": "List plugins, or create a new one.",
    "profiles": "List the profiles that can be chosen by name.",
    "replay": "Play the trace of a cluster under one or several profiles.",
    "run": "Schedule the pods of a cluster.",
    "simulate": "Schedule the pods of manifests on a cluster in memory.",
    "snapshot": "Keep what Gangline reads of a cluster in a file.",
    "status": "Show the GPUs of the cluster, the gangs and the waiting pods.",
    "topology": "Draw the domains of the network, their nodes and their GPUs.",
    "ui": "Show the cluster live in a browser.",
    "version": "Show the versions of this program, the API server and the scheduler.",
    "webhook": "Serve admission reviews.",
    "whatif": "Ask whether a gang that does not exist yet would start, or what a drain would do.",
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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; who puts options of a command before its name, as kubectl allows, is told where they stand."""
        try:
            return super().parse_args(ctx, args)
        except click.exceptions.NoSuchOption as error:
            command = next((each for each in args if each in self.list_commands(ctx)), None)
            if command is None:
                raise
            why = f"No such option {error.option_name!r} before the command"
            why += f": write `{ctx.command_path} {command} {error.option_name} ...`"
            raise click.UsageError(why, ctx) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; the error for a misspelt command names similar commands, which click does not know."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands by their summaries: no command is imported because somebody presses a key."""
        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        return [
            *(CompletionItem(name, help=SUMMARIES.get(name)) for name in names),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]


def _summary(name: str) -> str:
    """The summary of a command in `--help`; a command is imported only if its source does not say the summary."""
    if name in SUMMARIES:
        return SUMMARIES[name]
    from gangline.commands.summaries import written_summary

    where = added()[name].value
    try:
        return written_summary(name, where, _WIDEST) or load(name, where).get_short_help_str(_WIDEST)
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
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module of another distribution may raise anything, and must not end the process
        raise click.ClickException(f"the command {name} cannot be loaded from {where}: {error!r}") from error
    if not isinstance(command, click.Command):
        raise click.ClickException(f"the command {name} is no click.Command at {where}")
    return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@version_option("gangline")
@click.pass_context
def cli(context: click.Context) -> None:
    """Gangline schedules GPU workloads on Kubernetes."""
    if context.invoked_subcommand not in COMMANDS:
        interrupting.raise_from_now_on()  # commands of others may rely on it


def kubectl() -> None:
    """Run a command as a plugin of kubectl."""
    main("kubectl gangline")


def kubectl_complete() -> None:
    """Complete the words after `kubectl gangline`."""
    from gangline.commands.completion import for_kubectl

    for line in for_kubectl(cli, sys.argv[1:]):
        click.echo(line)


def main(program: str | None = None) -> None:
    """Run a command: exit 0 on success, 1 with one line on a failure, 2 on wrong usage; other codes are in `errors`."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # None if closed; open until the process ends
    write_any_text(sys.stdout)
    try:
        cli(standalone_mode=False, prog_name=program)
    except click.exceptions.Abort:
        sys.exit(interrupting.INTERRUPTED)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.UsageError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(1)
    except GanglineError as error:
        # Nobody may read it, and the process has to end.
        Lines(sys.stderr).write(f"gangline: {on_one_line(str(error))}")
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        Lines(sys.stderr).write(f"gangline: the output cannot be written: {error.strerror}")
        os._exit(1)  # Python would try to write the rest again, and end with another code
