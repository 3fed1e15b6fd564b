"""Which version of Gangline runs, and from which commit it was built."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import metadata
from typing import Any, TypeVar

import click

COMMIT = "GANGLINE_COMMIT"
"""The variable that an image sets."""

Command = TypeVar("Command", bound=Callable[..., Any])


def commit() -> str:
    """The commit; empty where the build did not say."""
    return os.environ.get(COMMIT, "")


def version() -> str:
    """Such as ``0.1.0``, or ``0.1.0 (abc1234)`` where the commit is known."""
    number = metadata.version("gangline")
    return f"{number} ({built})" if (built := commit()) else number


def version_option(program: str) -> Callable[[Command], Command]:
    """The option ``--version`` of a command."""
    return click.version_option(version(), prog_name=program, message="%(prog)s %(version)s")
