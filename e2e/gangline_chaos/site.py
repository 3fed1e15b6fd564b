"""What a run consists of, for the faults to break: control plane, schedulers, workload and recorder."""

from __future__ import annotations

from dataclasses import dataclass

from gangline_chaos.answering import RoughServer
from gangline_chaos.network import Gates
from gangline_chaos.recorder import Recorder
from gangline_chaos.schedulers import Replicas
from gangline_chaos.workload import Workload
from gangline_e2e.api import Api
from gangline_e2e.harness import ControlPlane

ELECTION = "gangline"
"""The Lease by which the schedulers elect a leader."""
LEASE_S = 2.0
"""How long a scheduler leads without a renewal."""


@dataclass(frozen=True, slots=True)
class Site:
    """All parts of a run."""

    plane: ControlPlane
    api: Api
    recorder: Recorder
    gates: Gates
    rough: RoughServer
    replicas: Replicas
    workload: Workload
