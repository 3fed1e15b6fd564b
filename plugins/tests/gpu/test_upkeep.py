"""The ResourceClaimTemplates of GpuClaims: made, made again, removed when nothing needs them, never a stranger's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline import ApiError, Forbidden, NotFound, Unavailable, claim_templates, custom_resources, model, resources
from gangline.simulate import SimulatedClient
from gangline.testing import cluster
from gangline_plugins.gpu.upkeep import KEPT_FOR, SETTLED, Book, leaves_at, plan

from .carrying_cases import PLUGINS, TWO_PROFILES, CarryingCluster, carried
from .gpu_cases import claim

TWO = {"spec": {"devices": {"count": 2}}}


def template(of: custom_resources.GpuClaim, uid: str = "t") -> model.ResourceClaimTemplate:
    made = claim_templates.template_of(of)
    made.metadata.uid = uid
    return made


def change(of: custom_resources.GpuClaim, **fields: Any) -> custom_resources.GpuClaim:
    metadata = msgspec.structs.replace(of.metadata, **{key: fields.pop(key) for key in ("uid",) if key in fields})
    return msgspec.structs.replace(of, metadata=metadata, spec=msgspec.structs.replace(of.spec, **fields))


def test_a_claim_needs_one_template_and_no_more_once_it_is_there() -> None:
    wanted = carried()

    assert plan(wanted, [], {}, 0.0).make == claim_templates.template_of(wanted)
    assert plan(wanted, [template(wanted)], {}, 0.0) == type(plan(None, [], {}, 0.0))()


@pytest.mark.parametrize(
    ("now", "patience"),
    [
        pytest.param(change(carried(), devices=claim(count=2).spec.devices), KEPT_FOR, id="another spec"),
        pytest.param(claim(), KEPT_FOR, id="no class any more"),
        pytest.param(change(carried(), uid="other"), SETTLED, id="another claim of the name"),
        pytest.param(None, SETTLED, id="no claim"),
    ],
)
def test_a_template_that_nothing_needs_stays_for_a_while(
    now: custom_resources.GpuClaim | None, patience: float
) -> None:
    before = template(carried())

    assert plan(now, [before], {}, 1000.0).leaving == (before,)
    assert plan(now, [before], {"t": 1000.0}, 999.0 + patience).leaving == (before,)
    assert plan(now, [before], {"t": 1000.0}, 1000.0 + patience).remove == (before,)


@pytest.mark.parametrize("since", [6.01, 6.08, 6.4, 0.35, 1000.0])
def test_a_template_goes_at_the_end_of_the_pause_however_times_are_rounded(since: float) -> None:
    before = template(carried())
    end = leaves_at(before, False, {"t": since}, since)

    assert end == since + SETTLED
    assert plan(None, [before], {"t": since}, end).remove == (before,)


@pytest.mark.parametrize("wrong", [claim(), carried(exclusivity="Shared"), carried(count=33)])
def test_a_claim_that_no_resource_claim_can_carry_out_gets_no_template(wrong: custom_resources.GpuClaim) -> None:
    assert plan(wrong, [], {}, 0.0).make is None


def test_on_a_standby_claims_that_come_and_go_leave_nothing_behind() -> None:
    """Nobody takes from the list there; the leader begins with all GpuClaims."""
    cache = cluster()
    book, claims = Book(cache), cache.store(resources.GPU_CLAIMS)
    for number in range(10):
        claims.upsert(carried(f"claim-{number}"))
        claims.remove("default", f"claim-{number}", carried(f"claim-{number}").metadata.uid)
    stands_by = dict(book.due)
    book.workers = 1
    claims.upsert(carried())

    assert not stands_by and list(book.due) == [("default", "claim")]


def test_after_a_change_the_old_template_goes_when_its_time_has_passed() -> None:
    cluster = CarryingCluster(a=4)

    async def story() -> None:
        cluster.add(carried())
        await cluster.simulated.until(lambda: len(cluster.templates()) == 1)
        (old,) = cluster.templates()
        cluster.simulated.server.patch(resources.GPU_CLAIMS, "claim", TWO, namespace="default")
        await cluster.simulated.until(lambda: len(cluster.templates()) == 2)
        await cluster.pass_time(KEPT_FOR - 5)
        assert old in cluster.templates()
        await cluster.simulated.until(lambda: len(cluster.templates()) == 1)
        assert old not in cluster.templates()

    cluster.play(story)


def test_a_template_that_somebody_deletes_is_made_again() -> None:
    cluster = CarryingCluster(a=4)

    async def story() -> None:
        cluster.add(carried())
        await cluster.simulated.until(lambda: len(cluster.templates()) == 1)
        ((name, before),) = cluster.templates().items()
        cluster.simulated.server.delete(resources.RESOURCE_CLAIM_TEMPLATES, name, namespace="default")
        await cluster.simulated.until(lambda: len(cluster.templates()) == 1)
        assert cluster.templates()[name].metadata.uid != before.metadata.uid

    cluster.play(story)


def test_the_templates_of_a_deleted_claim_go_and_a_new_claim_of_the_name_gets_its_own() -> None:
    cluster = CarryingCluster(a=4)

    async def story() -> None:
        cluster.add(carried())
        await cluster.simulated.until(lambda: len(cluster.templates()) == 1)
        cluster.simulated.server.delete(resources.GPU_CLAIMS, "claim", namespace="default")
        cluster.add(change(carried(), uid="another"))

        def owners() -> list[str]:
            return [each.uid for found in cluster.templates().values() for each in found.metadata.owner_references]

        await cluster.simulated.until(lambda: owners() == ["another"])
        cluster.pod("p")
        await cluster.bound("p")

    cluster.play(story)


def test_a_strangers_template_stays_as_it_is_and_the_claim_says_so_until_it_goes() -> None:
    cluster = CarryingCluster(a=4)
    name = claim_templates.template_name(carried())
    theirs = model.ResourceClaimTemplate(model.ObjectMeta(name, "default"))

    async def story() -> None:
        cluster.simulated.create(resources.RESOURCE_CLAIM_TEMPLATES, theirs)
        cluster.add(carried())
        await cluster.simulated.until(lambda: cluster.claim().status.phase == "Failed")
        assert "exists, and does not belong to the GpuClaim" in cluster.claim().status.message
        await cluster.pass_time(100)
        assert cluster.templates()[name].spec == theirs.spec
        cluster.simulated.server.delete(resources.RESOURCE_CLAIM_TEMPLATES, name, namespace="default")
        await cluster.simulated.until(lambda: cluster.claim().status.phase == "Pending")
        cluster.pod("p")
        await cluster.bound("p")

    cluster.play(story)
    assert [
        each.count_of for each in map(_Counted, cluster.simulated.list(resources.EVENTS)) if each.is_about_templates
    ] == [1]


class _Counted:
    """An event, and how often it was told."""

    def __init__(self, event: model.Event) -> None:
        self.is_about_templates = event.reason == "ClaimTemplateNotMade"
        self.count_of = event.series.count if event.series is not None else 1


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (Unavailable(0, "", "no answer"), False),
        (Forbidden(403, "Forbidden", "no"), True),
        (NotFound(404, "", "no"), True),
    ],
    ids=["no answer", "no right to", "kind not served"],
)
def test_a_template_that_cannot_be_made_is_tried_again(error: ApiError, failed: bool) -> None:
    cluster = CarryingCluster(a=4)
    is_down = True

    def faults(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return error if is_down and verb == "create" and resource == resources.RESOURCE_CLAIM_TEMPLATES else None

    async def story() -> None:
        nonlocal is_down
        cluster.add(carried())
        await cluster.pass_time(5)
        assert (cluster.claim().status.phase == "Failed") == failed
        cluster.pod("p")
        await cluster.pass_time(30)
        assert cluster.simulated.bound() == {}
        is_down = False
        await cluster.bound("p")

    cluster.play(story, faults)


def test_profiles_and_schedulers_take_turns_and_make_one_template() -> None:
    cluster = CarryingCluster(a=4)
    created: list[str] = []

    def faults(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb == "create" and resource == resources.RESOURCE_CLAIM_TEMPLATES:
            created.append(name)
        return None

    async def story() -> None:
        client = SimulatedClient(cluster.simulated.server, faults=faults)
        async with cluster.simulated.scheduling(TWO_PROFILES, client, plugins=PLUGINS):
            cluster.add(*(carried(f"claim-{number}") for number in range(40)))
            for number in range(4):
                cluster.pod(f"p{number}", f"claim-{number}", scheduler_name=f"scheduler-{number % 2}")
            await cluster.bound(*(f"p{number}" for number in range(4)))
            await cluster.simulated.until(lambda: len(cluster.templates()) == 40)
            await cluster.pass_time(60)

    cluster.play(story, faults)
    assert {each.metadata.owner_references[0].name for each in cluster.templates().values()} == {
        f"claim-{number}" for number in range(40)
    }
    assert len(created) <= 2 * 40, "two schedulers, and each of them once"


def test_a_new_scheduler_goes_on_where_the_last_one_ended() -> None:
    cluster = CarryingCluster(a=4)
    cluster.add(carried())

    async def first() -> None:
        await cluster.simulated.until(lambda: len(cluster.templates()) == 1)

    async def second() -> None:
        await cluster.simulated.until(lambda: len(cluster.templates()) == 2)
        await cluster.simulated.until(lambda: len(cluster.templates()) == 1, 2 * KEPT_FOR)

    cluster.play(first)
    cluster.simulated.server.patch(resources.GPU_CLAIMS, "claim", TWO, namespace="default")
    cluster.play(second)
    (left,) = cluster.templates().values()
    assert left.spec.spec.devices.requests[0].exactly.count == 2  # type: ignore[union-attr]
