"""Gangs in every dialect: the objects and pods that people, or the controllers of each system, make.

What a gang asks for stands in its `Rule` once more, for the checks: they know none of the dialects. Every pod says in
labels of the test which gang it is of and, where parts matter, which part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gangline_e2e.workloads import Manifest, Manifests, gpu_pod, kwok_node

GANG, PART = "example.com/gang", "example.com/part"
SPINE, LEAF, TIER_0 = "topology.gangline.dev/spine", "topology.gangline.dev/leaf", "fabric.topograph.run/tier-0"
LEVELS = {SPINE: "spine", LEAF: "leaf", TIER_0: TIER_0}
"""The names that gangs use for the levels, by node label."""
INDEX = "batch.kubernetes.io/job-completion-index"
PROFILE = "gpu-scheduler"


@dataclass(frozen=True, slots=True)
class Rule:
    """How close the pods of a gang have to be, by node labels; "" for no wish."""

    required: str = ""
    preferred: str = ""
    part: str = ""
    """The level of which one domain has to hold all pods of a part."""
    part_size: int = 0
    """The number of pods with consecutive indices that make a part; 0 if pods name their parts."""


ANYWHERE = Rule()


@dataclass(frozen=True, slots=True)
class Gang:
    """The objects to create for a gang, and the rule that its placement has to obey."""

    name: str
    size: int
    min_member: int
    rule: Rule
    objects: Manifests
    pods: Manifests = field(default_factory=list)
    """The pods to create; empty if a controller creates them."""


Dialect = Callable[[str, int, Rule, int], Gang]
"""Makes a gang of a name, a number of pods, a rule, and the GPUs of each pod."""


def fabric(spines: int = 8, leaves: int = 16, nodes: int = 8) -> Iterator[Manifest]:
    """Nodes of 8 GPUs; those of spine 0 have a label of Topograph too. Leaves of different spines have equal names."""
    for spine in range(spines):
        for leaf in range(leaves):
            for number in range(nodes):
                labels = {SPINE: f"spine-{spine}", LEAF: f"leaf-{leaf}"}
                if spine == 0:
                    labels[TIER_0] = f"switch-{leaf}"
                yield kwok_node(f"s{spine}-l{leaf}-n{number}", labels=labels)


def pod_of(gang: str, number: int, gpus: int, **fields: Any) -> Manifest:
    """One pod of a gang, for the packaged profile unless the fields say otherwise."""
    fields["labels"] = {GANG: gang, **fields.get("labels", {})}
    return gpu_pod(f"{gang}-{number}", gpus=gpus, **{"scheduler_name": PROFILE, **fields})


def wishes(rule: Rule, prefix: str = "gangline.dev/topology-") -> dict[str, str]:
    """The rule as annotations that end in required and preferred."""
    said = {"required": rule.required, "preferred": rule.preferred}
    return {f"{prefix}{kind}": LEVELS[level] for kind, level in said.items() if level}


# Groups with an object of their own


def upstream(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """spec.schedulingGroup, with the required level in the PodGroup."""
    spec: Manifest = {"schedulingPolicy": {"gang": {"minCount": size}}}
    if rule.required:
        spec["schedulingConstraints"] = {"topology": [{"key": rule.required}]}
    group = _object("scheduling.k8s.io/v1alpha2", "PodGroup", name, spec, wishes(Rule(preferred=rule.preferred)))
    pods = [pod_of(name, i, gpus, spec={"schedulingGroup": {"podGroupName": name}}) for i in range(size)]
    return Gang(name, size, size, rule, [group], pods)


def scheduler_plugins(name: str, size: int, rule: Rule, gpus: int, min_member: int = 0) -> Gang:
    """The label scheduling.x-k8s.io/pod-group; the level in annotations of the PodGroup."""
    least = min_member or size
    group = _object("scheduling.x-k8s.io/v1alpha1", "PodGroup", name, {"minMember": least}, wishes(rule))
    pods = [pod_of(name, i, gpus, labels={"scheduling.x-k8s.io/pod-group": name}) for i in range(size)]
    return Gang(name, size, least, rule, [group], pods)


def kai(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """KAI's PodGroup; parts are subGroups of `part_size` pods."""
    spec: Manifest = {"minMember": size}
    constraint = {f"{kind}TopologyLevel": level for kind, level in _levels(rule).items()}
    if constraint:
        spec["topologyConstraint"] = {"topology": "cluster", **constraint}
    count = -(-size // rule.part_size) if rule.part_size else 0
    if count:
        within = {"topology": "cluster", "requiredTopologyLevel": LEVELS[rule.part]}
        spec["subGroups"] = [
            {
                "name": f"part-{i}",
                "minMember": min(rule.part_size, size - i * rule.part_size),
                "topologyConstraint": within,
            }
            for i in range(count)
        ]
    pods = []
    for i in range(size):
        part = f"part-{i // rule.part_size}" if count else ""
        labels = {"kai.scheduler/subgroup-name": part, PART: part} if part else {}
        pods.append(pod_of(name, i, gpus, labels=labels, annotations={"pod-group-name": name}))
    group = _object("scheduling.run.ai/v2alpha2", "PodGroup", name, spec)
    return Gang(name, size, size, Rule(rule.required, rule.preferred, rule.part), [group], pods)


def volcano(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """Volcano's PodGroup with the level as the name of a tier."""
    spec: Manifest = {"minMember": size}
    if rule.required or rule.preferred:
        mode = "hard" if rule.required else "soft"
        spec["networkTopology"] = {"mode": mode, "highestTierName": LEVELS[rule.required or rule.preferred]}
    group = _object("scheduling.volcano.sh/v1beta1", "PodGroup", name, spec)
    notes = {"scheduling.k8s.io/group-name": name, "volcano.sh/task-spec": "worker"}
    return Gang(name, size, size, rule, [group], [pod_of(name, i, gpus, annotations=notes) for i in range(size)])


def gang_ref(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """A GpuClaim whose gangRef names a PodGroup; the claim alone says how many GPUs a pod takes."""
    spec = {"devices": {"count": gpus}, "gangRef": name}
    claim = _object("gpu.scheduling/v1", "GpuClaim", name, spec)
    group = _object("scheduling.x-k8s.io/v1alpha1", "PodGroup", name, {"minMember": size}, wishes(rule))
    notes = {"gpu.scheduling/claim": name}
    return Gang(name, size, size, rule, [claim, group], [pod_of(name, i, 0, annotations=notes) for i in range(size)])


# Groups that stand in the pods alone


def kueue(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """Kueue's group of plain pods; slices by the index of the pod."""
    prefix = "kueue.x-k8s.io/"
    notes = {f"{prefix}pod-group-total-count": str(size)}
    notes |= {f"{prefix}podset-{kind}-topology": level for kind, level in _keys(rule).items()}
    if rule.part_size:
        notes |= {f"{prefix}podset-slice-required-topology": rule.part}
        notes |= {f"{prefix}podset-slice-size": str(rule.part_size)}
    pods = []
    for i in range(size):
        labels = {f"{prefix}pod-group-name": name, f"{prefix}pod-group-pod-index": str(i)}
        if rule.part_size:
            labels[PART] = f"slice-{i // rule.part_size}"
        pods.append(pod_of(name, i, gpus, labels=labels, annotations=notes))
    return Gang(name, size, size, Rule(rule.required, rule.preferred, rule.part), [], pods)


def koordinator(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """Koordinator's annotations, with layers that gather."""
    layers = {SPINE: "SpineLayer", LEAF: "LeafLayer"}
    gathers = [("MustGather", rule.required), ("PreferGather", rule.preferred)]
    strategy = [{"layer": layers[level], "strategy": how} for how, level in gathers if level]
    prefix = "gang.scheduling.koordinator.sh/"
    notes = {f"{prefix}name": name, f"{prefix}min-available": str(size), f"{prefix}total-number": str(size)}
    if strategy:
        notes[f"{prefix}network-topology-spec"] = json.dumps({"gatherStrategy": strategy})
    return Gang(name, size, size, rule, [], [pod_of(name, i, gpus, annotations=notes) for i in range(size)])


# Groups that follow from what owns the pods


def indexed_job(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """A Job that runs all its indices at once; the controller makes the pods."""
    return Gang(name, size, size, rule, [job_of(name, size, gpus, wishes(rule), completionMode="Indexed")])


def gpu_count(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """A Job that says how many GPUs it takes in all."""
    notes = {"topology.scheduler/gpu-count": str(size * gpus), **wishes(rule)}
    return Gang(name, size, size, rule, [job_of(name, size, gpus, notes)])


def job_set(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """A JobSet with a driver and two jobs of workers, and the pods that its Jobs would make."""
    jobs = (("driver", 1, 1), ("workers", 2, (size - 1) // 2))
    spec = {
        "replicatedJobs": [
            {"name": part, "replicas": count, "template": {"spec": {"parallelism": pods, "completions": pods}}}
            for part, count, pods in jobs
        ]
    }
    prefix = "jobset.sigs.k8s.io/"
    places = [(part, job, i) for part, count, each in jobs for job in range(count) for i in range(each)]
    pods = []
    for number, (part, job, index) in enumerate(places):
        labels = {f"{prefix}jobset-name": name, f"{prefix}replicatedjob-name": part, f"{prefix}job-index": str(job)}
        pods.append(pod_of(name, number, gpus, labels={**labels, INDEX: str(index)}))
    group = _object("jobset.x-k8s.io/v1alpha2", "JobSet", name, spec, wishes(rule))
    return Gang(name, len(pods), len(pods), rule, [group], pods)


def leader_worker_set(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """One replica of a LeaderWorkerSet, and the pods of its leader and workers."""
    prefix = "leaderworkerset.sigs.k8s.io/"
    template: Manifest = {"spec": {"containers": []}}
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}}
    whole = _object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, spec, wishes(rule))
    labels = {f"{prefix}name": name, f"{prefix}group-index": "0", f"{prefix}group-key": f"{name}-key"}
    notes = {f"{prefix}size": str(size)}
    pods = [
        pod_of(name, i, gpus, labels={**labels, f"{prefix}worker-index": str(i)}, annotations=notes)
        for i in range(size)
    ]
    return Gang(name, size, size, rule, [whole], pods)


DIALECTS: tuple[Dialect, ...] = (
    upstream,
    scheduler_plugins,
    kai,
    volcano,
    koordinator,
    kueue,
    leader_worker_set,
    job_set,
    indexed_job,
    gpu_count,
)
"""All dialects but that of claims that name a pod group."""


def is_scheduled(group: Manifest) -> bool:
    """Whether the status of a PodGroup, of Kubernetes or of scheduler-plugins, says that its gang is scheduled."""
    status = group.get("status", {})
    conditions = [(each["type"], each["status"]) for each in status.get("conditions", [])]
    return status.get("phase") == "Scheduled" or ("PodGroupScheduled", "True") in conditions


def job_of(name: str, size: int, gpus: int, annotations: Mapping[str, str], **spec: Any) -> Manifest:
    """A Job whose pods say which gang they are of; what it asks for stands on the Job itself."""
    pod = pod_of(name, 0, gpus)
    template = {"metadata": {"labels": {GANG: name}}, "spec": {**pod["spec"], "restartPolicy": "Never"}}
    whole = {"parallelism": size, "completions": size, "template": template, **spec}
    return _object("batch/v1", "Job", name, whole, annotations)


def _object(
    api_version: str, kind: str, name: str, spec: Manifest, annotations: Mapping[str, str] | None = None
) -> Manifest:
    metadata = {"name": name, "annotations": dict(annotations or {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _levels(rule: Rule) -> dict[str, str]:
    return {kind: LEVELS[level] for kind, level in _keys(rule).items()}


def _keys(rule: Rule) -> dict[str, str]:
    return {kind: level for kind, level in (("required", rule.required), ("preferred", rule.preferred)) if level}
