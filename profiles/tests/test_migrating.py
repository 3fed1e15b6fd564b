"""Configurations of other GPU schedulers are answered once, with what to write instead."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from gangline import config, main
from gangline.commands.config import effective
from gangline.profile.registry import Catalog

FOREIGN = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: gpu-scheduler-config
  namespace: kube-system
data:
  config.yaml: |
    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    profiles:
    - schedulerName: gpu-scheduler
      plugins:
        preFilter:
          enabled:
          - name: GpuClaimPlugin
        filter:
          enabled:
          - name: GpuClaimPlugin
        score:
          enabled:
          - name: GpuClaimPlugin
        reserve:
          enabled:
          - name: GpuClaimPlugin
        preBind:
          enabled:
          - name: GpuClaimPlugin
"""
INSTEAD = "{multiPoint: {enabled: [{name: GpuClaim}, {name: DeviceLease}]}}"


def validated(file: Path, text: str) -> Result:
    file.write_text(text)
    return CliRunner().invoke(main.cli, ["config", "validate", str(file)])


def test_a_plugin_under_its_old_name_is_one_error_that_says_what_to_write(tmp_path: Path) -> None:
    result = validated(tmp_path / "scheduler.yaml", FOREIGN)

    said = f"{result.output}{result.exception}"
    assert result.exit_code != 0
    assert said.count("GpuClaimPlugin is called GpuClaim and DeviceLease here") == 1
    assert "unknown plugin" not in said
    points = ", ".join(f"plugins.{point}" for point in ("preFilter", "filter", "score", "reserve", "preBind"))
    assert f"take it out of {points} and write plugins: {INSTEAD}" in said


def test_what_the_error_says_to_write_is_taken_and_runs_at_the_same_points(tmp_path: Path) -> None:
    before, _ = FOREIGN.split("      plugins:\n")
    text = f"{before}      plugins: {INSTEAD}\n"

    assert validated(tmp_path / "scheduler.yaml", text).exit_code == 0
    (profile,) = effective(config.load(text, "scheduler.yaml"), Catalog.discover()).profiles
    for point in ("pre_filter", "filter", "score", "reserve"):
        assert "GpuClaim" in [plugin.name for plugin in getattr(profile.plugins, point).enabled]
    assert "DeviceLease" in [plugin.name for plugin in profile.plugins.pre_bind.enabled]


def test_a_profile_that_disables_it_is_answered_too(tmp_path: Path) -> None:
    before, _ = FOREIGN.split("      plugins:\n")

    result = validated(
        tmp_path / "scheduler.yaml", f"{before}      plugins: {{score: {{disabled: [{{name: GpuClaimPlugin}}]}}}}\n"
    )

    assert "take it out of plugins.score and write" in f"{result.output}{result.exception}"
