"""The page of commands, from the command line itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from gangline.main import cli
from gangline_docs.markdown import code, page, prose, table


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
        "Each command exits 0 on success, 1 on a failure with one line on standard error, and 2 on wrong usage. "
        "`-h` or `--help` tells what stands here."
    )
    return page("Commands", summary, *(_section(words, command) for words, command in walk(cli, ("gangline",))))


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
