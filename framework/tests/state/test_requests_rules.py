"""Kubernetes' rules for requests, written down once more for one resource and plain numbers: the same for every pod."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gangline.model import Container, ContainerStatus, PodCondition, PodSpec, PodStatus, ResourceRequirements, Resources
from gangline.state.requests import DEFAULT_MEMORY, DEFAULT_MILLI_CPU, compute

Amount = Fraction | int | None


@dataclass(frozen=True)
class Part:
    """A container, or the pod as a whole, and one resource: what it asks for and what the kubelet says of it."""

    asked: Amount
    is_reported: bool = False
    used: Amount = None
    given: Amount = None

    def effective(self, infeasible: bool) -> Amount:
        """What counts; None where nothing is named."""
        if not self.is_reported:
            return self.asked
        named = [each for each in (self.used, self.given, None if infeasible else self.asked) if each is not None]
        return max(named, default=None)


@dataclass(frozen=True)
class OneResource:
    """A pod as one resource sees it."""

    containers: list[Part]
    init: list[tuple[bool, Part]]
    """Whether it is a sidecar, and what it wants."""
    pod: Part
    overhead: Amount
    infeasible: bool

    def peak(self, default: Amount) -> Amount:
        """The most that containers need at any moment; None where none of them names the resource."""
        moments: list[Fraction | int] = []
        named = False
        sidecars: Fraction | int = 0
        for is_sidecar, part in self.init:
            wanted = part.effective(self.infeasible) if is_sidecar else part.asked
            wanted = default if wanted is None else wanted
            named = named or wanted is not None
            moments.append(sidecars + (wanted or 0))
            sidecars += (wanted or 0) if is_sidecar else 0
        wants = [part.effective(self.infeasible) for part in self.containers]
        wants = [default if wanted is None else wanted for wanted in wants]
        named = named or any(wanted is not None for wanted in wants)
        moments.append(sidecars + sum(wanted or 0 for wanted in wants))
        return max(moments) if named else None

    def total(self, default: Amount, with_pod: bool = True) -> Amount:
        """With what the pod as a whole asks for, if that is wanted, and the overhead."""
        amount = self.peak(default)
        if with_pod and self.pod.asked is not None:
            amount = self.pod.effective(self.infeasible) or 0
        return amount if self.overhead is None else (amount or 0) + self.overhead

    def nonzero(self, default: Amount, pod_asks: bool) -> Fraction | int:
        """With the default, as a running pod counts in scores; pod_asks says whether the pod asks for any resource."""
        plain = self.total(None)
        return (plain if pod_asks and plain is not None else self.total(default)) or 0


AMOUNTS = st.one_of(st.none(), st.integers(0, 5))


@st.composite
def one_resource(draw: st.DrawFn, shape: Shape) -> OneResource:
    def part(is_reported: bool) -> Part:
        return Part(draw(AMOUNTS), is_reported, draw(AMOUNTS), draw(AMOUNTS))

    return OneResource(
        [part(reported) for reported in shape.containers],
        [(is_sidecar, part(reported)) for is_sidecar, reported in shape.init],
        part(shape.is_pod_reported) if shape.has_pod else Part(None),
        draw(AMOUNTS),
        shape.infeasible,
    )


@dataclass(frozen=True)
class Shape:
    """What all resources of a pod have in common: its containers, and of which the kubelet reports resources."""

    containers: list[bool]
    init: list[tuple[bool, bool]]
    has_pod: bool
    is_pod_reported: bool
    infeasible: bool


SHAPES = st.builds(
    Shape,
    st.lists(st.booleans(), max_size=3),
    st.lists(st.tuples(st.booleans(), st.booleans()), max_size=3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, OneResource]:
    shape = draw(SHAPES)
    return {name: draw(one_resource(shape)) for name in ("cpu", "memory", "hugepages-2Mi")}


def amounts(seen: dict[str, Amount]) -> Resources:
    return {name: str(amount) for name, amount in seen.items() if amount is not None}


def as_container(name: str, parts: dict[str, Part], restart: str | None = None) -> tuple[Container, ContainerStatus]:
    asked = ResourceRequirements(requests=amounts({r: part.asked for r, part in parts.items()}))
    is_reported = any(part.is_reported for part in parts.values())
    used = ResourceRequirements(requests=amounts({r: part.used for r, part in parts.items()}))
    given = amounts({r: part.given for r, part in parts.items()})
    return (
        Container(name=name, resources=asked, restart_policy=restart),
        ContainerStatus(name, given, used if is_reported else None),
    )


def as_pod(seen: dict[str, OneResource]) -> tuple[PodSpec, PodStatus]:
    some = next(iter(seen.values()))
    main = [
        as_container(f"main-{i}", {r: one.containers[i] for r, one in seen.items()})
        for i in range(len(some.containers))
    ]
    init = [
        as_container(f"init-{i}", {r: one.init[i][1] for r, one in seen.items()}, "Always" if is_sidecar else None)
        for i, (is_sidecar, _) in enumerate(some.init)
    ]
    whole, running = as_container("", {r: one.pod for r, one in seen.items()})
    reason = "Infeasible" if some.infeasible else "Deferred"
    return (
        PodSpec(
            containers=[container for container, _ in main],
            init_containers=[container for container, _ in init],
            resources=whole.resources,
            overhead=amounts({r: one.overhead for r, one in seen.items()}),
        ),
        PodStatus(
            conditions=[PodCondition("PodResizePending", "True", reason=reason)],
            container_statuses=[status for _, status in main],
            init_container_statuses=[status for _, status in init],
            resources=running.resources,
            allocated_resources=running.allocated_resources,
        ),
    )


@given(pods())
def test_every_pod_counts_as_kubernetes_counts_it_each_resource_on_its_own(seen: dict[str, OneResource]) -> None:
    pod_asks = any(one.pod.asked is not None for one in seen.values())

    found = compute(*as_pod(seen))

    scale = {"cpu": 1000, "memory": 1, "hugepages-2Mi": 1}
    assert found.real == {r: amount * scale[r] for r, one in seen.items() if (amount := one.total(None))}
    defaults = {"cpu": Fraction(DEFAULT_MILLI_CPU, 1000), "memory": Fraction(DEFAULT_MEMORY)}
    for i, (r, default) in enumerate(defaults.items()):
        assert found.nonzero[i] == seen[r].nonzero(default, pod_asks) * scale[r]
        assert found.scoring.get(r, 0) == (seen[r].total(default, with_pod=False) or 0) * scale[r]
