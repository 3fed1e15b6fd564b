"""`gangline plugins`: lists the installed plugins, and writes a new one."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path

import click
import msgspec

from gangline.api.hookspecs import POINTS
from gangline.commands import options
from gangline.commands.output import print_whole, table
from gangline.profile.registry import Catalog, distributions

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

[tool.hatch.build.targets.wheel]
include = ["{package}.py"]
""",
    "{package}.py": '''\
"""{name}: prefer nodes that carry the label that the pod names."""

import msgspec
import numpy as np

from gangline import NodeView, PodInfo, ScoreColumn, hookimpl


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments, as `pluginConfig` of a profile has them."""

    annotation: str = "example.com/prefer-label"
    """On a pod: the label that it prefers nodes to have."""


class {name}:
    """Scores 100 where the node has the label named in the pod's annotation, else 0."""

    name = "{name}"
    args_type = Args

    def __init__(self, args: Args) -> None:
        self._annotation = args.annotation

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """One value per node."""
        key = pod.annotations.get(self._annotation)
        if key is None:
            return np.zeros(len(nodes))
        return 100.0 * nodes.label(key).exists
''',
    "test_{package}.py": '''\
"""{name} on a small cluster."""

from {package} import Args, {name}

from gangline.testing import cluster, make_node, make_pod, run_score

CLUSTER = cluster([make_node("a", labels={{"fast": ""}}), make_node("b")])


def test_nodes_with_the_label_are_preferred() -> None:
    pod = make_pod("p", annotations={{"example.com/prefer-label": "fast"}})

    assert run_score({name}, pod, CLUSTER) == {{"a": 100.0, "b": 0.0}}


def test_a_pod_that_names_no_label_has_no_preference() -> None:
    assert run_score({name}, make_pod("p"), CLUSTER) == {{"a": 0.0, "b": 0.0}}


def test_the_annotation_can_be_another_one() -> None:
    pod = make_pod("p", annotations={{"example.com/other": "fast"}})

    assert run_score({name}, pod, CLUSTER, Args(annotation="example.com/other")) == {{"a": 100.0, "b": 0.0}}
''',
    "case.yaml": """\
# gangline explain -f case.yaml --config profile.yaml
nodes:
- metadata: {{name: a}}
  status: {{allocatable: {{cpu: "8", memory: 32Gi, pods: "110"}}}}
- metadata: {{name: b, labels: {{fast: ""}}}}
  status: {{allocatable: {{cpu: "8", memory: 32Gi, pods: "110"}}}}
pod:
  metadata: {{name: mine, namespace: default, annotations: {{example.com/wants: fast}}}}
  spec:
    schedulerName: my-scheduler
    containers: [{{name: main, resources: {{requests: {{cpu: "1"}}}}}}]
""",
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
  pluginConfig:
  - name: {name}
    args: {{annotation: example.com/wants}}
""",
    "README.md": """\
# {name}

    pip install pytest -e .
    gangline plugins list
    pytest                                                # {package}.py on a small cluster
    gangline explain -f case.yaml --config profile.yaml   # mine would go to b
    gangline run --config profile.yaml

Pods with `schedulerName: my-scheduler` are scheduled with it.
""",
}


_IMPORTED = frozenset(("gangline", "msgspec", "numpy", "pytest"))
"""The packages that a new plugin and its test import."""


class Listed(msgspec.Struct):
    """One plugin in the output of `gangline plugins list -o json`."""

    plugin: str
    points: list[str]
    source: str
    """The distribution that brings the plugin, and the object in it."""
    unusable: str
    """Why the plugin cannot be used; "" if it can."""


@click.group()
def plugins() -> None:
    """List plugins, or create a new one."""


@plugins.command("list", short_help="List all installed plugins.")
@options.OUTPUT
def list_(output: str) -> None:
    """List all installed plugins with their extension points, or with the reason why a plugin cannot be used."""
    rows = []
    for name, origin, points, fault in distributions(Catalog.discover()):
        at = [point for point in POINTS if point in points]
        rows.append(Listed(plugin=name, points=at, source=origin, unusable=fault))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return
    shown = table("PLUGIN", "EXTENSION POINTS", "FROM")
    for row in rows:
        does = f"unusable: {row.unusable}" if row.unusable else ", ".join(row.points)
        shown.add_row(row.plugin, does, row.source)
    print_whole(shown)


def package_of(name: str) -> str:
    """The module for a plugin of this class name: gpu_fit for GPUFit; never one that Python or a plugin needs."""
    words = re.findall(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z0-9]+", name)
    package = "_".join(words).lower()
    taken = keyword.iskeyword(package) or package in sys.stdlib_module_names or package in _IMPORTED
    return f"{package}_plugin" if taken else package


@plugins.command(short_help="Write a working plugin to a new folder.")
@click.argument("name")
@click.option(
    "--directory", type=click.Path(path_type=Path), default=None, help="The new folder. Default: ./NAME in lower case."
)
def new(name: str, directory: Path | None) -> None:
    """Write a working plugin package with the plugin NAME, for example PreferRack, to a new folder."""
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name) or not name[0].isupper():
        raise click.UsageError(f"{name!r} is no name for a plugin: a Python class name like PreferRack is expected")
    package = package_of(name)
    folder = directory or Path(package.replace("_", "-"))
    if folder.exists() and any(folder.iterdir()):
        raise click.ClickException(f"{folder}: is not empty; choose another folder with --directory")
    folder.mkdir(parents=True, exist_ok=True)
    words = {"name": name, "package": package, "package_dashed": package.replace("_", "-")}
    for file, text in _SKELETON.items():
        (folder / file.format(**words)).write_text(text.format(**words))
    shadowed = Catalog.discover().origin(name) if name in Catalog.discover().names else ""
    if shadowed:
        click.echo(
            f"warning: {name} is there already ({shadowed}): installed beside it neither of them can be used; "
            "take another name, and disable the old one in the profile",
            err=True,
        )
    click.echo(f"{folder}: a working plugin; next: pip install -e {folder}")
