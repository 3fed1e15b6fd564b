"""A profile keeps answers about pods with claims: they are the answers of a profile that keeps nothing."""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gangline import PodInfo, model, resources
from gangline.testing import FakeHandle, Runtime, cluster, make_node, make_pod, make_runtime
from gangline_plugins.dynamic_resources import DynamicResources, DynamicResourcesArgs

from .claim_cases import DRIVER, exactly, spec

NODES, NAMED, OWNED = 3, 4, 3
NUMBERS = st.integers(0, NAMED + OWNED - 1)
ROWS = st.integers(0, NODES - 1)
BROKEN = model.DeviceSelector(model.CelDeviceSelector(f'device.attributes["{DRIVER}"].none == 1'))
"""A selector that fails on every device, so that the message names the claim."""


class Answers(RuleBasedStateMachine):
    """The first pods name one claim or two of the first ones; each of the others has a claim made from a template."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = cluster([make_node(f"n{row}") for row in range(NODES)])
        self.cache.store(resources.DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu")))
        for row in range(NODES):
            devices = [model.Device(f"d{number}") for number in range(1 + row)]
            made = model.ResourceSliceSpec(DRIVER, model.ResourcePool(f"n{row}", 1, 1), f"n{row}", devices=devices)
            self.cache.store(resources.RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(f"s{row}"), made))
        self.version = 0
        self.claims: dict[int, model.ResourceClaim] = {}
        self.pods: list[PodInfo] = []
        for number in range(NAMED + OWNED):
            self.pods.append(self.cache.record(_pod(number)))
            self.comes(number, is_broken=number > NAMED)
        self.kept = {order: self._runtime(order) for order in ("upstream", "best")}

    def _runtime(self, order: str) -> Runtime:
        args = DynamicResourcesArgs(allocation_order="best" if order == "best" else "upstream")
        handle = FakeHandle(self.cache)
        return make_runtime(self.cache, DynamicResources, handle=handle, args={"DynamicResources": args})

    def _write(self, number: int, claim: model.ResourceClaim, **status: object) -> None:
        self.version += 1
        metadata = msgspec.structs.replace(claim.metadata, resource_version=str(self.version))
        changed = msgspec.structs.replace(claim.status, **status)
        self.claims[number] = msgspec.structs.replace(claim, metadata=metadata, status=changed)
        self.cache.store(resources.RESOURCE_CLAIMS).upsert(self.claims[number])

    @rule(number=NUMBERS, is_broken=st.booleans())
    def comes(self, number: int, is_broken: bool) -> None:
        if number not in self.claims:
            metadata = model.ObjectMeta(f"c{number}", "default", f"u{self.version}-{number}")
            if number >= NAMED:
                metadata.owner_references = [
                    model.OwnerReference(kind="Pod", name=f"p{number}", uid=self.pods[number].uid)
                ]
            wanted = spec(exactly(selectors=[BROKEN])) if is_broken else spec()
            self._write(number, model.ResourceClaim(metadata, wanted))

    @rule(number=NUMBERS)
    def goes(self, number: int) -> None:
        if self.claims.pop(number, None) is not None:
            self.cache.store(resources.RESOURCE_CLAIMS).remove("default", f"c{number}")

    @rule(number=NUMBERS, row=ROWS, device=ROWS, reachable=ROWS)
    def gets_devices(self, number: int, row: int, device: int, reachable: int) -> None:
        """Another scheduler writes; a claim may have been given others before, and usable from another node."""
        if number in self.claims and device <= row:
            result = model.AllocatedDevice(DRIVER, f"n{row}", f"d{device}", request="gpu")
            named = model.Requirement("metadata.name", "In", [f"n{reachable}"])
            only = model.NodeSelector([model.NodeSelectorTerm(match_fields=[named])])
            given = model.ResourceClaimAllocation(model.AllocatedDevices([result]), only)
            self._write(number, self.claims[number], allocation=given)

    @rule(number=NUMBERS)
    def gives_devices_back(self, number: int) -> None:
        if number in self.claims:
            self._write(number, self.claims[number], allocation=None)

    @rule(number=NUMBERS, row=ROWS)
    def is_placed(self, number: int, row: int) -> None:
        if self.pods[number].row < 0:
            self.cache.assume(self.pods[number], row)

    @rule(number=NUMBERS)
    def is_taken_off(self, number: int) -> None:
        if self.pods[number].row >= 0:
            self.cache.forget(self.pods[number])

    @invariant()
    def answers_are_those_of_a_profile_that_keeps_nothing(self) -> None:
        for order, kept in self.kept.items():
            fresh = self._runtime(order)
            for pod in self.pods:
                if pod.row < 0:
                    assert said(kept, pod) == said(fresh, pod)


def _pod(number: int) -> model.Pod:
    if number < NAMED:
        names = sorted({number, number * 3 % NAMED})
        return make_pod(f"p{number}", resource_claims=[model.PodResourceClaim(f"e{n}", f"c{n}") for n in names])
    entry = model.PodResourceClaim("gpu", resource_claim_template_name="one")
    made = make_pod(f"p{number}", resource_claims=[entry])
    made.status.resource_claim_statuses = [model.PodResourceClaimStatus("gpu", f"c{number}")]
    return made


def said(runtime: Runtime, pod: PodInfo) -> tuple[list[bool], str, list[float]]:
    """Where a pod fits, why not elsewhere, and the scores."""
    filtered = runtime.filter(pod)
    scores = runtime.evaluator.scores(filtered) if filtered.feasible.any() else {}
    rated = scores["DynamicResources"].tolist() if "DynamicResources" in scores else []
    return filtered.feasible.tolist(), runtime.evaluator.diagnose(filtered).message(), rated


TestAnswers = Answers.TestCase
TestAnswers.settings = settings(
    max_examples=settings().max_examples * 3 // 5,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
