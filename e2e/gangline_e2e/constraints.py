"""Judge placements by the rules on other pods, ports and volumes, with the objects of the API alone.

On purpose this is not Gangline's own code, and it is plain: every pod is compared with every other pod.
If the hard rules held at each placement, they hold at the end, as long as no pod that others need was deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gangline_e2e.placements import faults
from gangline_e2e.workloads import Manifest, Manifests, is_bound

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Objects:
    """What a cluster holds at one moment."""

    pods: Manifests
    nodes: Manifests
    claims: Manifests
    volumes: Manifests


def violations(objects: Objects) -> list[str]:
    """One line for each hard constraint that a bound pod breaks; also those of `placements.faults`."""
    bound = [pod for pod in objects.pods if is_bound(pod)]
    nodes = {node["metadata"]["name"]: node for node in objects.nodes}
    found = faults(bound, objects.nodes)
    for pod in bound:
        node = nodes[pod["spec"]["nodeName"]]
        others = [other for other in bound if other is not pod]
        broken = (
            *_node_affinity(pod, node),
            *_ports(pod, others),
            *_pod_affinity(pod, others, nodes),
            *_spread(pod, bound, nodes),
            *_volumes(pod, others, node, objects),
        )
        found.extend(f"pod {pod['metadata']['name']} on node {node['metadata']['name']}: {each}" for each in broken)
    return found


def selects(selector: Manifest | None, labels: Manifest) -> bool:
    """Whether a label selector matches; an absent one matches nothing, an empty one everything."""
    if selector is None:
        return False
    equal = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return equal and all(_holds(each, labels) for each in selector.get("matchExpressions", ()))


def node_selected(selector: Manifest, node: Manifest) -> bool:
    """Whether one of the terms of a node selector matches a node's labels."""
    labels = node["metadata"].get("labels", {})
    return any(all(_holds(each, labels) for each in term["matchExpressions"]) for term in selector["nodeSelectorTerms"])


def _holds(expression: Manifest, labels: Manifest) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values", ())
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
    raise ValueError(f"{expression['operator']}: not an operator")


def _node_affinity(pod: Manifest, node: Manifest) -> Iterator[str]:
    if not _may_use(pod, node):
        yield "breaks its node affinity"


def _may_use(pod: Manifest, node: Manifest) -> bool:
    """Whether a node has the labels that a pod's selector and node affinity want."""
    labels = node["metadata"].get("labels", {})
    wanted = pod["spec"].get("nodeSelector", {})
    required = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    fits = all(labels.get(key) == value for key, value in wanted.items())
    return fits and (required is None or node_selected(required, node))


def _ports(pod: Manifest, others: Iterable[Manifest]) -> Iterator[str]:
    mine = set(_host_ports(pod))
    for other in others:
        if other["spec"]["nodeName"] == pod["spec"]["nodeName"]:
            for port, protocol in sorted(mine.intersection(_host_ports(other))):
                yield f"shares {protocol} port {port} with {other['metadata']['name']}"


def _host_ports(pod: Manifest) -> Iterator[tuple[int, str]]:
    """Host ports; the address is left out, as only pods for all addresses are judged."""
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", ()):
            if "hostPort" in port:
                yield port["hostPort"], port.get("protocol", "TCP")


def _pod_affinity(pod: Manifest, others: Sequence[Manifest], nodes: dict[str, Manifest]) -> Iterator[str]:
    affinity = pod["spec"].get("affinity", {})
    for term in affinity.get("podAffinity", {}).get(REQUIRED, ()):
        if not any(_together(pod, other, term, nodes) for other in others):
            yield f"has no pod near it that its affinity wants: {term['labelSelector']}"
    for term in affinity.get("podAntiAffinity", {}).get(REQUIRED, ()):
        for other in others:
            if _together(pod, other, term, nodes):
                yield f"is beside {other['metadata']['name']} against its anti-affinity"


def _together(pod: Manifest, other: Manifest, term: Manifest, nodes: dict[str, Manifest]) -> bool:
    """Whether a term selects another pod that is in the same domain."""
    key = term["topologyKey"]
    here, there = (_label(nodes[each["spec"]["nodeName"]], key) for each in (pod, other))
    return here is not None and here == there and selects(term["labelSelector"], other["metadata"].get("labels", {}))


def _spread(pod: Manifest, bound: Sequence[Manifest], nodes: dict[str, Manifest]) -> Iterator[str]:
    for constraint in pod["spec"].get("topologySpreadConstraints", ()):
        if constraint["whenUnsatisfiable"] != "DoNotSchedule":
            continue
        key = constraint["topologyKey"]
        counts = {_label(node, key): 0 for node in nodes.values() if _may_use(pod, node) and _label(node, key)}
        there = Counter(
            _label(nodes[other["spec"]["nodeName"]], key)
            for other in bound
            if _may_use(pod, nodes[other["spec"]["nodeName"]])
            and selects(constraint["labelSelector"], other["metadata"].get("labels", {}))
        )
        counts |= {domain: there[domain] for domain in counts}
        least = 0 if len(counts) < constraint.get("minDomains", 1) else min(counts.values())
        if max(counts.values()) - least > constraint["maxSkew"]:
            yield f"is spread unevenly over {key}: {counts}"


def _volumes(pod: Manifest, others: Iterable[Manifest], node: Manifest, objects: Objects) -> Iterator[str]:
    claims = {claim["metadata"]["name"]: claim for claim in objects.claims}
    volumes = {volume["metadata"]["name"]: volume for volume in objects.volumes}
    for name in _claim_names(pod):
        claim = claims.get(name)
        if claim is None or claim["status"]["phase"] != "Bound":
            yield f"its claim {name} is not bound"
            continue
        volume = volumes[claim["spec"]["volumeName"]]
        if volume["spec"]["claimRef"].get("uid") != claim["metadata"]["uid"]:
            yield f"its volume {volume['metadata']['name']} belongs to another claim"
        if not node_selected(volume["spec"]["nodeAffinity"]["required"], node):
            yield f"its volume {volume['metadata']['name']} cannot be used there"
        if "ReadWriteOncePod" in claim["spec"]["accessModes"] and any(name in _claim_names(other) for other in others):
            yield f"its claim {name} is used by another pod too"


def _claim_names(pod: Manifest) -> list[str]:
    sources = (volume.get("persistentVolumeClaim") for volume in pod["spec"].get("volumes", ()))
    return [source["claimName"] for source in sources if source is not None]


def _label(node: Manifest, key: str) -> str | None:
    labels: dict[str, str] = node["metadata"].get("labels", {})
    return labels.get(key)
