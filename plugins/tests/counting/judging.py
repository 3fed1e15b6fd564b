"""A small cluster, and a profile with one plugin that judges it."""

from __future__ import annotations

from typing import Any

import msgspec

from gangline import PodInfo, model
from gangline.testing import Cache, FakeHandle, Runtime
from gangline.testing.configured import load_cluster, make_profiles

Object = dict[str, Any]
_PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      disabled: [{{name: "*"}}]
      enabled: [{{name: PrioritySort}}, {{name: DefaultBinder}}, {{name: {plugin}, weight: 1}}]
"""


def judged_by(plugin: str, args: str, objects: dict[str, Any]) -> tuple[Cache, Runtime]:
    """A cluster of these objects by plural, and the runtime of a profile that filters and scores by one plugin."""
    text = _PROFILE.format(plugin=plugin) + (f"  pluginConfig: [{{name: {plugin}, args: {args}}}]\n" if args else "")
    cluster = load_cluster(objects)
    return cluster, make_profiles(text, FakeHandle(cluster))["default-scheduler"]


def record(cluster: Cache, given: Object) -> PodInfo:
    """What a cluster notes of a pod."""
    return cluster.record(msgspec.convert(given, model.Pod))
