"""The objects of a workload: pods as their controllers make them, with the groups and claims that they name."""

from __future__ import annotations

from collections.abc import Iterator

from gangline_e2e import gangs
from gangline_e2e.day.workload import CORE, PRIORITIES, WHOLE, Workload
from gangline_e2e.devices import CLAIM
from gangline_e2e.gangs import ANYWHERE, Gang, Rule, pod_of
from gangline_e2e.gpu_crds import claim
from gangline_e2e.workloads import Manifest, Manifests, priority_class

COMPLETES = "gangline.dev/completes-after"
DIALECTS = {dialect.__name__: dialect for dialect in (*gangs.DIALECTS, gangs.gang_ref)}
COLLECTIONS = {
    "scheduling.k8s.io/v1alpha2": "podgroups",
    "scheduling.x-k8s.io/v1alpha1": "podgroups",
    "scheduling.run.ai/v2alpha2": "podgroups",
    "scheduling.volcano.sh/v1beta1": "podgroups",
    "jobset.x-k8s.io/v1alpha2": "jobsets",
    "leaderworkerset.x-k8s.io/v1": "leaderworkersets",
}
"""The collections of groups, by apiVersion."""
CLAIMS = "/apis/gpu.scheduling/v1/namespaces/{}/gpuclaims"


def priority_classes() -> Iterator[Manifest]:
    """The priority classes that workloads name."""
    return (priority_class(name, value) for name, value in PRIORITIES.items())


def gang_of(workload: Workload) -> Gang:
    """What to create for a workload; a pod on its own is a gang of one without a rule."""
    made = _made(workload)
    for pod in made.pods:
        pod["metadata"]["annotations"][COMPLETES] = f"{workload.runs_s:g}s"
        pod["spec"]["priorityClassName"] = workload.priority
        _resources(pod)["requests"]["cpu"] = f"{CORE * max(workload.gpus, 1)}m"
    return made


def paths(namespace: str, objects: Manifests) -> list[str]:
    """Where the groups and claims of a workload are."""
    found = []
    for each in objects:
        version, name = each["apiVersion"], each["metadata"]["name"]
        collection = CLAIMS.format(namespace)
        if each["kind"] != "GpuClaim":
            collection = f"/apis/{version}/namespaces/{namespace}/{COLLECTIONS[version]}"
        found.append(f"{collection}/{name}")
    return found


def _made(workload: Workload) -> Gang:
    name = workload.name
    if workload.kind == "gang":
        rule = Rule(workload.level, part=workload.part, part_size=workload.part_size)
        return DIALECTS[workload.dialect](name, workload.size, rule, workload.gpus)
    if workload.kind == "pod":
        return Gang(name, 1, 1, ANYWHERE, [], [pod_of(name, 0, workload.gpus)])
    if workload.kind == "fraction":
        devices = {"count": 1, "exclusivity": "Shared", "fraction": workload.milli / WHOLE}
        spec: Manifest = {"devices": devices}
    else:
        spec = {
            "devices": {"count": workload.gpus, "policy": "contiguous"},
            "topology": {"mode": "Required"},
        }
    whole = workload.gpus if workload.kind == "claim" else 0  # as the webhook adds what a claim for whole devices gives
    pod = pod_of(name, 0, whole, annotations={CLAIM: name})
    return Gang(name, 1, 1, ANYWHERE, [claim(name, **spec)], [pod])


def _resources(pod: Manifest) -> Manifest:
    found: Manifest = pod["spec"]["containers"][0]["resources"]
    return found
