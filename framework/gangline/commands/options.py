"""Options that several commands have; those of commands that read a cluster are kubectl's.

The agent and the webhook share this module, so modules that only commands about a cluster need are imported when used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from gangline.errors import ApiError, ConfigError, GanglineError
from gangline.process import logs
from gangline.state.selectors import EVERYTHING, Selector

if TYPE_CHECKING:
    from gangline.overview.shown import Shown

Command = Callable[..., None]
_NODES = frozenset({"node", "nodes", "no"})
"""What kubectl calls the kind of nodes."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The options by which the API server is found."""

    kubeconfig: str | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True)
class PodChoice:
    """The options that choose pods."""

    namespace: str | None = None
    everywhere: bool = False
    labels: Selector = EVERYTHING

    def within(self, default: str) -> str:
        """The namespace to show, or "" for all; `default` is that of the context, "" if it has none."""
        return "" if self.everywhere else self.namespace or default or "default"

    @property
    def wider(self) -> str:
        """The option by which more pods are shown, for messages."""
        return "they have other labels than -l asks for" if self.everywhere else "-A: all namespaces"

    def shown(self, default: str) -> Shown:
        """The pods to show; `default` is that of `within`."""
        from gangline.overview.shown import Shown

        return Shown(self.within(default), self.labels)


def selected(selector: str) -> Selector:
    """A label selector as kubectl takes it, `a=b,c!=d,e in (f,g),!h`. Raises GanglineError."""
    if not selector.strip():
        return EVERYTHING
    from gangline.simulate.selecting import label_requirements  # with the API server in memory; few ask

    return label_requirements(selector)


def address(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """The callback of options that name an address, or none by "". Raises BadParameter for any other value."""
    from gangline.process.listening import parse_address

    try:
        if value:
            parse_address(value, "")
    except ConfigError as error:
        raise click.BadParameter(error.why, context, parameter) from error
    return value


def _level(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value.lower() not in logs.LEVELS:
        raise click.BadParameter(f"{value!r} is not one of {', '.join(logs.LEVELS)}", context, parameter)
    return value


class NamedNode(click.ParamType[str]):
    """A node: NAME, or node/NAME as `gangline topology -o name` and `kubectl get nodes -o name` print it."""

    name = "node"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name alone."""
        kind, _, name = str(value).rpartition("/")
        return name if kind in _NODES else str(value)


class InputFile(click.Path):
    """A file that is read, or standard input for `-`, as in `kubectl apply -f -`; a file of this name is `./-`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        return super().convert("/dev/stdin" if value == "-" else value, param, ctx)


NODE = NamedNode()
DRAIN = click.option(
    "--drain", "drains", metavar="NODE", type=NODE, multiple=True, help="A node that is drained; may be repeated."
)
LISTEN = click.option(
    "--listen",
    default="0.0.0.0:8080",
    show_default=True,
    callback=address,
    help="Address for health, over plain HTTP.",
)
CONFIG = click.option(
    "--config", "files", type=click.Path(), multiple=True, help="A KubeSchedulerConfiguration file; may be repeated."
)
PROFILE = click.option("--profile", default=None, help="Name of an installed profile; default: all.")
SCHEDULER = click.option(
    "--scheduler",
    metavar="URL",
    default=None,
    envvar="GANGLINE_SCHEDULER",
    help="Address of the running scheduler; default: the chart's pods, by `kubectl port-forward`.",
)
KUBECONFIG = click.option(
    "--kubeconfig",
    type=click.Path(),
    default=None,
    help="The kubeconfig file. Default: that of kubectl, else the service account of the pod.",
)
_CONTEXT = click.option("--context", metavar="NAME", help="A context of the kubeconfig. Default: the current one.")
SNAPSHOT = click.option(
    "--snapshot",
    type=InputFile(dir_okay=False),
    default=None,
    help="Answer from a file of `gangline snapshot save` instead of the cluster; `-`: from standard input.",
)
OUTPUT = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
WATCH = click.option(
    "-w", "--watch", "watches", is_flag=True, help="Show the output again when a pod or node has changed, until Ctrl-C."
)
LOG_FORMAT = click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
LOG_LEVEL = click.option(
    "--log-level",
    default=lambda: logs.level_from(os.environ),
    callback=_level,
    help="debug, info, warning or error. Default: $LOG_LEVEL or info.",
)


def output(*forms: str, default: str = "table") -> Callable[[Command], Command]:
    """The option -o of a command that reads a cluster; `forms` are added to the forms that all such commands have."""
    choices = click.Choice([default, "wide", "json", "yaml", "name", *forms])
    meaning = "wide: everything, each row in one line; name: one KIND/NAME per line."
    return click.option("-o", "--output", type=choices, default=default, show_default=True, help=meaning)


def connection(command: Command) -> Command:
    """Add the options that name the API server; the command is called with a `connection`."""

    @wraps(command)
    def connected(kubeconfig: str | None, context: str | None, **others: Any) -> None:
        command(connection=Connection(kubeconfig, context), **others)

    return KUBECONFIG(_CONTEXT(connected))


def namespaced(command: Command) -> Command:
    """Add the options that choose pods by namespace and labels; the command is called with a `scope`."""

    @wraps(command)
    def scoped(namespace: str | None, everywhere: bool, labels: Selector, **others: Any) -> None:
        command(scope=PodChoice(namespace, everywhere, labels), **others)

    name = click.option("-n", "--namespace", metavar="NAME", help="The namespace. Default: that of the context.")
    every = click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces.")
    return name(every(selector("Only pods")(scoped)))


def selector(chosen: str) -> Callable[[Command], Command]:
    """The option -l; the command is called with `labels`."""
    meaning = f"{chosen} with these labels, as in app=train,team!=a."
    return click.option("-l", "--selector", "labels", metavar="LABELS", default="", callback=_selector, help=meaning)


def _selector(context: click.Context, parameter: click.Parameter, value: str) -> Selector:
    try:
        return selected(value)
    except ApiError as error:  # the message is the API server's; the status is of no interest
        raise click.BadParameter(error.message, context, parameter) from error
    except GanglineError as error:
        raise click.BadParameter(str(error), context, parameter) from error
