"""The version of Gangline, and the commit that it was built from."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import metadata
from typing import Any, TypeVar

import click

COMMIT = "GANGLINE_COMMIT"
"""The environment variable that an image sets."""

Command = TypeVar("Command", bound=Callable[..., Any])


def commit() -> str:
    """The commit; empty if the build did not set it."""
    return os.environ.get(COMMIT, "")


def version() -> str:
    """The version, for example ``0.1.0``, or ``0.1.0 (abc1234)`` if the commit is known."""
    number = metadata.version("gangline")
    return f"{number} ({built})" if (built := commit()) else number


def version_option(program: str) -> Callable[[Command], Command]:
    """The option ``--version`` of a command; the metadata are read only if the option is given."""
    built = f" ({commit()})".replace("%", "%%") if commit() else ""
    return click.version_option(package_name="gangline", prog_name=program, message=f"%(prog)s %(version)s{built}")
