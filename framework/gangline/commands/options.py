"""Options that several commands have."""

from __future__ import annotations

import os

import click

from gangline.process import logs

CONFIG = click.option(
    "--config", "files", type=click.Path(), multiple=True, help="A KubeSchedulerConfiguration file; may be repeated."
)
PROFILE = click.option("--profile", default=None, help="Name of an installed profile; default: all.")
SCHEDULER = click.option(
    "--scheduler",
    metavar="URL",
    default=None,
    envvar="GANGLINE_SCHEDULER",
    help="Address of the running scheduler; default: the command asks it through the API server.",
)
KUBECONFIG = click.option(
    "--kubeconfig",
    type=click.Path(),
    default=None,
    help="Default: the kubeconfig of kubectl, else the service account.",
)
OUTPUT = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
LOG_FORMAT = click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
LOG_LEVEL = click.option(
    "--log-level", default=lambda: logs.level_from(os.environ), help="Default: $LOG_LEVEL or info."
)
