"""The option `--feature-gates` of `gangline run`: kube-scheduler's gates, with its names and its defaults."""

from __future__ import annotations

from collections.abc import Mapping

import click

EXPECTED_NODES = "NominatedNodeNameForExpectation"
DEFAULTS: Mapping[str, bool] = {EXPECTED_NODES: True}
"""All gates of the option, with the defaults of kube-scheduler 1.36. Gates of a plugin are arguments of the plugin."""
_VALUES: Mapping[str, bool] = {"true": True, "false": False}


def _read(context: click.Context, parameter: click.Parameter, text: str) -> Mapping[str, bool]:
    """All gates with their values. Raises BadParameter."""
    gates = dict(DEFAULTS)
    for entry in filter(None, text.split(",")):
        name, _, value = entry.strip().partition("=")
        if name not in DEFAULTS:
            raise click.BadParameter(f"there is no gate {name!r}; the gates are {', '.join(DEFAULTS)}")
        if value.lower() not in _VALUES:
            raise click.BadParameter(f"{name} is true or false, not {value!r}")
        gates[name] = _VALUES[value.lower()]
    return gates


FEATURE_GATES = click.option(
    "--feature-gates",
    "gates",
    default="",
    metavar="NAME=true|false,...",
    callback=_read,
    help=f"Gates of kube-scheduler. {EXPECTED_NODES}, on by default: before a binding that takes long, write the node "
    "to status.nominatedNodeName of the pod.",
)
