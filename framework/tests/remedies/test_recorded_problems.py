"""Remedies for the recorded problems of kube-scheduler: each makes some node feasible, and asking changes nothing."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import settings

from gangline import config, model
from gangline.explain.case import converted, load_cluster, make_claims
from gangline.profile.assembly import judging_runtimes
from gangline.queueing.units import Unit
from gangline.remedies import Remedies, Remedy, RemedyKind, find_remedies

from ..explain.test_parity import CASES
from .worlds import digest

Case = dict[str, Any]
PROFILE = config.load("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n", "test")
PROBLEMS = [
    case
    for cases in CASES.values()
    for case in cases
    if not case["expect"]["feasible"]
    and not case.get("gates")
    and case["input"].get("nodes")
    and not case["input"]["pod"]["spec"].get("nodeName")  # explain asks about a waiting pod
]


def asked(given: Case) -> Remedies:
    given = copy.deepcopy(given)
    cluster, pod = load_cluster(given), converted(given["pod"], model.Pod, "pod")
    make_claims(cluster, pod)
    (runtime,) = judging_runtimes(msgspec.structs.replace(PROFILE), cluster).values()
    unit = Unit([cluster.record(pod)], added=0.0)
    before = digest(cluster)
    found = find_remedies(unit, runtime, cluster, {}, 0.0)
    assert digest(cluster) == before
    return found


def after(given: Case, remedy: Remedy) -> Case:
    """The problem after somebody has carried the remedy out."""
    made, values = copy.deepcopy(given), remedy.values
    if remedy.kind in (RemedyKind.FREE_ROOM, RemedyKind.RAISE_PRIORITY):
        made["pods"] = [pod for pod in made["pods"] if _key(pod) not in values["pods"]]
    elif remedy.kind is RemedyKind.REPAIR_NODES:
        for node in made["nodes"]:
            if node["metadata"]["name"] in values["nodes"]:
                spec = node.setdefault("spec", {})
                spec["unschedulable"] = False
                spec["taints"] = [t for t in spec.get("taints", []) if not t["key"].startswith("node.kubernetes.io/")]
    elif remedy.kind is RemedyKind.TOLERATE_TAINT:
        more = {name: values[name] for name in ("key", "value", "effect")}
        more["operator"] = "Equal" if values["value"] else "Exists"
        made["pod"]["spec"].setdefault("tolerations", []).append(more)
    elif remedy.kind is RemedyKind.PREFER_NODES:
        spec = made["pod"]["spec"]
        for key in values["labels"]:
            del spec["nodeSelector"][key]
        if values["nodeAffinity"]:
            del spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    else:
        pytest.fail(f"there is no way to carry out {remedy}")
    return made


def _key(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"


def test_each_remedy_for_a_recorded_problem_helps() -> None:
    shown: Counter[RemedyKind] = Counter()
    problems = PROBLEMS[:: max(1, 40 // settings().max_examples)]

    for case in problems:
        for remedy in asked(case["input"]).remedies:
            if remedy.kind in (RemedyKind.SMALLER_REQUESTS, RemedyKind.MOVE_PODS):
                continue  # test_carried_out has them; a case has no controllers
            shown[remedy.kind] += 1
            assert asked(after(case["input"], remedy)).note == "it would start as things are", (case["id"], remedy)

    assert len(shown) >= 3
