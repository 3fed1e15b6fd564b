"""`gangline plugins`: what is installed, and a skeleton for a new one."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gangline.hookspecs import POINTS
from gangline.registry import Catalog, distributions

_SKELETON = {
    "pyproject.toml": """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{package_dashed}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["gangline", "numpy"]

[project.entry-points."gangline.plugins"]
{name} = "{package}:{name}"
""",
    "{package}.py": '''\
"""{name}: prefer nodes that carry the label that the pod names."""

import numpy as np

from gangline import NodeView, PodInfo, ScoreColumn, hookimpl

ANNOTATION = "example.com/prefer-label"


class {name}:
    """Scores 100 where the node has the label named in the pod's annotation, else 0."""

    name = "{name}"

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """One value per node."""
        key = pod.annotations.get(ANNOTATION)
        if key is None:
            return np.zeros(len(nodes))
        return 100.0 * nodes.label(key).exists
''',
    "profile.yaml": """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: my-scheduler
  plugins:
    multiPoint:
      enabled:
      - name: {name}
        weight: 2
""",
    "README.md": """\
# {name}

    pip install -e .
    gangline plugins list
    gangline run --config profile.yaml

Pods with `schedulerName: my-scheduler` are scheduled with it.
""",
}


@click.group()
def plugins() -> None:
    """List plugins, or start a new one."""


@plugins.command("list")
def list_() -> None:
    """Every plugin that is installed, with the extension points that it implements or why it cannot be used."""
    table = Table("PLUGIN", "EXTENSION POINTS", "FROM", box=None, pad_edge=False)
    for name, origin, points, fault in distributions(Catalog.discover()):
        does = f"unusable: {fault}" if fault else ", ".join(point for point in POINTS if point in points)
        table.add_row(name, escape(does), origin)
    Console().print(table)


@plugins.command()
@click.argument("name")
@click.option("--directory", type=click.Path(path_type=Path), default=None, help="Default: ./NAME in lower case.")
def new(name: str, directory: Path | None) -> None:
    """Write a working third-party plugin named NAME (like PreferRack) to a new folder."""
    if not name.isidentifier() or keyword.iskeyword(name) or not name[0].isupper():
        raise click.UsageError(f"{name!r} is no name for a plugin: a Python class name like PreferRack is expected")
    package = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    folder = directory or Path(package.replace("_", "-"))
    if folder.exists() and any(folder.iterdir()):
        raise click.ClickException(f"{folder}: is not empty")
    folder.mkdir(parents=True, exist_ok=True)
    words = {"name": name, "package": package, "package_dashed": package.replace("_", "-")}
    for file, text in _SKELETON.items():
        (folder / file.format(**words)).write_text(text.format(**words))
    click.echo(f"{folder}: a working plugin; next: pip install -e {folder}")
