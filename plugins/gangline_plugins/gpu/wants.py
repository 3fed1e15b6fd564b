"""The GPUs that a pod wants, by its GpuClaim or by a plain request for `nvidia.com/gpu` or a related resource.

Rules:
- A claim takes precedence over plain requests.
- Of plain requests for several such resources only the first counts here; NodeResourcesFit counts all of them.
- A claim that names a DeviceClass is *carried*: a ResourceClaim gives the pod its devices, and the device table none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gangline import PodClass, PodInfo, State, claim_templates, custom_resources, model, resources
from gangline_plugins.by_profile import ByProfile
from gangline_plugins.gpu.choosing import Rule
from gangline_plugins.gpu.hardware import MOST_PORTS, profile_name
from gangline_plugins.gpu.links import MOST_DEVICES

Exclusivity = Literal["Exclusive", "Shared", "MIG", "Replicas"]
"""As in the claim. Replicas are the pieces of a device that a device plugin hands out by time-slicing or MPS."""
ANY_PROFILE = ""
INVALID_CLAIM = "InvalidGpuClaim"
"""The reason of the event on a pod whose claim is invalid."""
DISAGREES = "GpuRequestDisagrees"
"""The reason of the event on a pod whose claim and requests would both count."""
NOT_CARRIED = "GpuClaimNotCarriedOut"
"""The reason of the event on a pod whose ResourceClaim for its GpuClaim is missing, unusable, or there by mistake."""
_PLAIN = Rule()
_SPARE = 1024
_MOST_INSTANCES = 64
"""The limit in the CRD."""
TOO_MANY = 1000 * MOST_DEVICES + 1
"""More devices or replicas than any node has. A pod that asks for more is treated as asking for this number, and gets
no node.
"""
_MOST_MEMORY_GIB = 2**20
"""The most memory of one device: far more than any device has, and far less than the column of it can hold."""


@dataclass(frozen=True, slots=True)
class FabricWant:
    """What a claim asks of the node's fabric."""

    rdma: bool = False
    min_ports: int = 0
    preferred_hcas: tuple[str, ...] = ()
    cu_file: Literal["", "Required", "Preferred"] = ""

    @property
    def has_preference(self) -> bool:
        """Whether some nodes are better than others; if the claim asks for ports, nodes with more of them are."""
        return bool(self.rdma or self.min_ports or self.preferred_hcas or self.cu_file == "Preferred")


_NO_FABRIC = FabricWant()


@dataclass(frozen=True, slots=True)
class Want:
    """The GPUs that a pod wants, as a value: equal wants get equal verdicts."""

    count: int
    exclusivity: Exclusivity = "Exclusive"
    rule: Rule = _PLAIN
    milli: int = 0
    """Shared: thousandths of each device."""
    memory_mib: int = 0
    """Shared: MiB of each device."""
    profile: str = ANY_PROFILE
    """MIG: the profile of each instance."""
    selector: tuple[tuple[str, str], ...] = ()
    fabric: FabricWant = _NO_FABRIC
    implicit: bool = False
    """Whether the want is a plain request. On a node that shares devices or divides them into instances it is for
    pieces.
    """
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole = self.count, self.exclusivity, self.milli, self.memory_mib, self.profile, self.implicit
        object.__setattr__(self, "_hash", hash((*whole, self.rule, self.selector, self.fabric)))

    def __hash__(self) -> int:
        return self._hash  # verdicts are looked up by it several times in each attempt


@dataclass(frozen=True, slots=True)
class Carried:
    """A claim that a ResourceClaim of the pod carries out: what the claim asks of the node besides devices."""

    claim: str
    """NAMESPACE/NAME of the GpuClaim."""
    device_class: str
    template: str
    """The name of the template from which new pods get their ResourceClaims."""
    selector: tuple[tuple[str, str], ...] = ()
    fabric: FabricWant = _NO_FABRIC


@dataclass(frozen=True, slots=True)
class WantProblem:
    """Why the pod's want cannot be determined or met."""

    message: str
    reason: str = ""
    """The reason of the event on the pod; "" for no event, because a missing object may still arrive."""


class MapProfiles(ByProfile[bool]):
    """The profiles that place pods by scheduling map, and whether maps need a permission there; pods with a map want no
    other devices.
    """

    def __init__(self) -> None:
        super().__init__(True)

    def are_free(self, profile: str) -> bool:
        """Whether maps in the profile count without the permission of their namespace."""
        return not self.of(profile)


class Wants:
    """The wants of pods, cached as long as claims and pod classes stay the same."""

    def __init__(self, state: State) -> None:
        self._profiles = state.shared(MapProfiles)
        self._claims = state.store(resources.GPU_CLAIMS)
        self._read: dict[tuple[str, str], tuple[custom_resources.GpuClaim, Want | Carried | WantProblem]] = {}
        self._same: dict[Want | Carried | WantProblem, Want | Carried | WantProblem] = {}
        """Equal wants share one object, which makes look-ups faster."""

    def of(self, pod: PodInfo) -> Want | WantProblem | None:
        """The want of a pod; None if it wants no GPUs of the device table, or only those that its map names."""
        found = self.asked(pod)
        return None if isinstance(found, Carried) else found

    def asked(self, pod: PodInfo) -> Want | Carried | WantProblem | None:
        """As `of`, and for a pod whose ResourceClaim carries its claim out, what that asks of the node.

        A bound pod that did not get its map's devices has the want of its claim or request.
        """
        annotations = pod.annotations
        if not annotations:
            return plain_want(pod)
        if (
            custom_resources.SCHEDULING_MAP in annotations
            and (not pod.node_name or custom_resources.ALLOCATED in annotations)
            and self._profiles.has(pod.scheduler_name)
        ):
            return None
        name = annotations.get(custom_resources.CLAIM)
        if not name:
            return plain_want(pod)
        asked = self._of_claim(pod.namespace, name)
        wrong = "" if isinstance(asked, WantProblem) else _not_carried(pod, name, asked)
        return WantProblem(wrong, NOT_CARRIED) if wrong else asked

    def _of_claim(self, namespace: str, name: str) -> Want | Carried | WantProblem:
        claim: custom_resources.GpuClaim | None = self._claims.get(name, namespace)
        if claim is None:
            self._read.pop((namespace, name), None)
            return WantProblem(f'GpuClaim "{namespace}/{name}" not found')
        known = self._read.get((namespace, name))
        if known is not None and known[0] is claim:
            return known[1]
        if max(len(self._read), len(self._same)) > 2 * len(self._claims) + _SPARE:  # most belong to deleted claims
            self._read.clear()
            self._same.clear()
        want = claim_want(claim)
        want = self._same.setdefault(want, want)
        self._read[namespace, name] = (claim, want)
        return want


def plain_want(pod: PodInfo) -> Want | None:
    """The want of a pod without a claim; None for no GPUs."""
    memo = pod.cls.memo
    if Want not in memo:
        memo[Want] = _plain_want(pod.cls.requests.real)
    want: Want | None = memo[Want]
    return want


def entry_of(pod: PodInfo) -> model.PodResourceClaim | None:
    """The entry of a pod's spec.resourceClaims that stands for its GpuClaim."""
    entries = pod.cls.spec.resource_claims
    return next((each for each in entries if each.name == claim_templates.ENTRY), None) if entries else None


def _not_carried(pod: PodInfo, name: str, asked: Want | Carried) -> str:
    """Why a pod's claim and its entry for a ResourceClaim disagree: it would get devices twice, or none; "" if not."""
    entry = entry_of(pod)
    if isinstance(asked, Want):
        if entry is None:
            return ""
        return f'the pod has a ResourceClaim for GpuClaim "{pod.namespace}/{name}", which names no DeviceClass'
    if entry is None:
        what = f'GpuClaim "{asked.claim}" is carried out by DeviceClass {asked.device_class}'
        return f"{what}, and the pod has no ResourceClaim for it"
    if not entry.resource_claim_template_name:
        return f'the pod\'s entry {entry.name} in spec.resourceClaims names no template of GpuClaim "{asked.claim}"'
    return ""


def claim_want(claim: custom_resources.GpuClaim) -> Want | Carried | WantProblem:
    """The want of a claim, or why the claim is invalid."""
    devices, topology = claim.spec.devices, claim.spec.topology
    wrong = _wrong(devices) or (
        "policy spread and topology.mode Required contradict each other for more than one device"
        if devices.policy == "spread" and topology.mode == "Required" and devices.count > 1
        else next(claim_templates.faults(claim.spec), "")
    )
    named = f"{claim.metadata.namespace}/{claim.metadata.name}"
    if wrong:
        return WantProblem(f'GpuClaim "{named}": {wrong}', INVALID_CLAIM)
    labels = (claim.spec.selector.match_labels if claim.spec.selector else None) or {}
    selector, fabric = tuple(sorted(labels.items())), _fabric(claim.spec)
    if device_class := claim.spec.device_class_name:
        return Carried(named, device_class, claim_templates.template_name(claim), selector, fabric)
    return Want(
        count=devices.count,
        exclusivity=devices.exclusivity,
        rule=Rule(
            devices.policy,
            _preferred(devices.prefer_ids) if devices.policy == "preferIds" else (),
            topology.mode,
            0.0 if topology.mode == "Ignore" else float(topology.min_bandwidth_gbps),
        ),
        milli=round(1000 * (devices.fraction or 0)),
        memory_mib=1024 * (devices.memory_gi_b or 0),
        profile=profile_name(devices.mig_profile),
        selector=selector,
        fabric=fabric,
    )


def _fabric(spec: custom_resources.GpuClaimSpec) -> FabricWant:
    network, storage = spec.network, spec.storage
    if network is None and storage is None:
        return _NO_FABRIC
    return FabricWant(
        rdma=network.rdma_required if network else False,
        min_ports=min(max(network.min_ports, 0), MOST_PORTS + 1) if network else 0,
        preferred_hcas=tuple(network.preferred_hcas) if network else (),
        cu_file=storage.cu_file if storage else "",
    )


def disagreement(pod: PodInfo, want: Want) -> str:
    """Why a pod's claim and its requests contradict each other, as both would count; "" if they do not."""
    if want.implicit or not _requests_gpus(pod.cls):
        return ""
    amounts = pod.cls.requests.real
    whole = amounts.get(custom_resources.GPU, 0)
    pieces = sum(number for name, number in amounts.items() if _is_gpu(name)) - whole
    match want.exclusivity:
        case "Exclusive" if pieces or whole != want.count:
            gives, may = f"{want.count} GPUs", f"it may request {custom_resources.GPU}: {want.count}, or none"
        case "Shared":
            gives, may = "shares of GPUs", "it may request no GPUs besides"
        case "MIG" if whole + pieces != want.count:
            gives, may = f"{want.count} MIG instances", f"it may request {want.count} of them, or none"
        case _:
            return ""
    return f"the pod's claim gives it {gives}, and it requests {_gpus_in(amounts)}: {may}"


def excess(pod: PodInfo, carried: Carried) -> str:
    """Which GPUs a pod requests besides the devices of its ResourceClaim, as both would count; "" if none."""
    asked = _gpus_in(pod.cls.requests.real)
    gives = f"the pod's claim gives it devices of DeviceClass {carried.device_class}"
    return f"{gives}, and it requests {asked}: it may request no GPUs besides" if asked else ""


def _gpus_in(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {number}" for name, number in sorted(amounts.items()) if number and _is_gpu(name))


def _requests_gpus(cls: PodClass) -> bool:
    if disagreement not in cls.memo:
        cls.memo[disagreement] = any(number and _is_gpu(name) for name, number in cls.requests.real.items())
    found: bool = cls.memo[disagreement]
    return found


def _is_gpu(resource: str) -> bool:
    return resource in (custom_resources.GPU, custom_resources.SHARED_GPU) or resource.startswith(
        custom_resources.MIG_PREFIX
    )


def _preferred(ids: Sequence[int]) -> tuple[int, ...]:
    """The ids that a device may have, each once; other ids never exist."""
    return tuple(dict.fromkeys(id for id in ids if 0 <= id < MOST_DEVICES))


def _wrong(devices: custom_resources.ClaimDevices) -> str:
    """Which values contradict each other or are out of range; the API server refuses most of them."""
    most = _MOST_INSTANCES if devices.exclusivity == "MIG" else MOST_DEVICES
    if not 1 <= devices.count <= most:
        return f"devices.count is {devices.count}; it must be 1 to {most}"
    if devices.fraction is not None and not 0.01 <= devices.fraction <= 1.0:
        return f"devices.fraction is {devices.fraction:g}; it must be 0.01 to 1"
    if devices.memory_gi_b is not None and not 1 <= devices.memory_gi_b <= _MOST_MEMORY_GIB:
        return f"devices.memoryGiB is {devices.memory_gi_b}; it must be 1 to {_MOST_MEMORY_GIB}"
    if devices.exclusivity != "Shared" and (devices.fraction is not None or devices.memory_gi_b is not None):
        return f"devices.fraction and devices.memoryGiB contradict exclusivity {devices.exclusivity}"
    if devices.exclusivity != "MIG" and devices.mig_profile:
        return f"devices.migProfile contradicts exclusivity {devices.exclusivity}"
    if devices.exclusivity == "MIG" and not devices.mig_profile:
        return "exclusivity MIG needs devices.migProfile"
    return ""


def _plain_want(amounts: Mapping[str, int]) -> Want | None:
    if (count := amounts.get(custom_resources.GPU, 0)) > 0:
        return Want(min(count, TOO_MANY), implicit=True)
    if (count := amounts.get(custom_resources.SHARED_GPU, 0)) > 0:
        return Want(min(count, TOO_MANY), "Replicas", implicit=True)
    for name, count in sorted(amounts.items()):
        if name.startswith(custom_resources.MIG_PREFIX) and count > 0:
            profile = profile_name(name.removeprefix(custom_resources.MIG_PREFIX))
            return Want(min(count, TOO_MANY), "MIG", profile=profile, implicit=True)
    return None
