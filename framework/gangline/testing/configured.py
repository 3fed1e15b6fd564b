"""What a plugin gets from a configuration, for tests of plugins: profiles of installed plugins, arguments, clusters.

cache = load_cluster({"nodes": [{"metadata": {"name": "a"}}]})
runtime = make_profiles(PROFILE, FakeHandle(cache), plugins=[MyPlugin])["my-scheduler"]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gangline import config
from gangline.config import SchedulerConfiguration
from gangline.config.args import decode_args
from gangline.explain.case import load_cluster
from gangline.profile.assembly import build_runtimes
from gangline.profile.registry import Catalog
from gangline.profile.runtime import Runtime
from gangline.testing import FakeHandle

__all__ = ["configuration", "decode_args", "load_cluster", "make_profiles"]


def configuration(text: str) -> SchedulerConfiguration:
    """A KubeSchedulerConfiguration from YAML. Raises ConfigError."""
    return config.load(text, "configuration")


def make_profiles(text: str, handle: FakeHandle, plugins: Iterable[type[Any]] = ()) -> dict[str, Runtime]:
    """The profiles of a KubeSchedulerConfiguration in YAML, by schedulerName, on the fakes of a handle.

    Profiles may name installed plugins and the given `plugins`. Raises ConfigError and PluginError.
    """
    catalog = Catalog.discover().with_classes(*plugins)
    return build_runtimes(configuration(text), catalog, handle.services, handle.fake_metrics, None)
