"""The page of commands, from the command line itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from gangline.errors import ClusterError, LeadershipLost, NotAllowed
from gangline.main import cli
from gangline_docs.markdown import code, page, prose, table

EXIT_CODES = (
    ("0", "Success."),
    ("1", "A failure. Also: nothing in the cluster has the name that was given."),
    ("2", "Wrong usage: an unknown option, or an argument that is missing or cannot be read."),
    (str(LeadershipLost.exit_code), "`gangline run` has lost its Lease."),
    (
        str(ClusterError.exit_code),
        "The cluster cannot be read: no kubeconfig, no such context, no API server that answers, a certificate that is "
        "not trusted, or credentials that it does not accept.",
    ),
    (str(NotAllowed.exit_code), "The user may not do what the command does."),
    ("130", "Ctrl-C. `agent`, `run`, `ui`, `webhook` and `simulate --ui` run until Ctrl-C, and end with 0."),
)
"""What a command ends with."""


def walk(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command and all commands below it, with the words that call them."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=words[-1])
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, f"{name} is listed but not there"
            yield from walk(child, (*words, name))


def render() -> str:
    """The page."""
    summary = (
        "`-h` or `--help` tells what stands here. Commands that read a cluster have "
        "[options of kubectl](../operating/kubectl.md). A command that fails writes one line to standard error."
    )
    codes = table(("Exit code", "Meaning"), EXIT_CODES)
    return page("Commands", summary, codes, *(_section(words, command) for words, command in walk(cli, ("gangline",))))


def _section(words: tuple[str, ...], command: click.Command) -> str:
    context = click.Context(command, info_name=" ".join(words))
    usage = " ".join([*words, *command.collect_usage_pieces(context)])
    parts = [
        f"{'#' * min(1 + len(words), 3)} {' '.join(words)}",
        f"```text\n{usage}\n```",
        prose(inspect.cleandoc(command.help or "")),
    ]
    rows = [_row(each, context) for each in command.params if isinstance(each, click.Option) and not each.hidden]
    if rows:
        parts.append(table(("Option", "Value", "Default", "Meaning"), rows))
    return "\n\n".join(part for part in parts if part)


def _row(option: click.Option, context: click.Context) -> tuple[str, str, str, str]:
    names = ", ".join(f"{code(name)}{{.whole}}" for name in (*option.opts, *option.secondary_opts))
    info = option.get_help_extra(context)
    repeated = " (may be repeated)" if option.multiple else ""
    value = "" if option.is_flag else f"{_value(option)}{repeated}"
    default = info.get("default", "")
    environment = ", ".join(f"${name}" for name in info.get("envvars", ()))
    return names, value, code(str(default)) or environment, prose(option.help or "")


def _value(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return " ".join(code(str(choice)) for choice in option.type.choices)
    return (option.metavar or option.type.name.removesuffix(" range")).lower()
