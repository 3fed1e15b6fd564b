"""What comes between a gang and its nodes: late owners, bindings by others, new profiles, plugins with bugs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gangline import Placement, PodInfo, Status, config, hookimpl, model, unschedulable
from gangline.api.pod_group import FallbackStep, Membership, PodGroup, SubGroup, TopologyConstraint
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.deciding.scheduling import give_back
from gangline.kube.resources import JOBS, PODS, SCHEDULER_PLUGINS_POD_GROUPS, Resource
from gangline.testing import make_pod
from gangline.testing.gang_stories import PROFILE, GangCluster
from gangline.testing.gangs import Gangs, fabric

WITHOUT_GANGS = PROFILE.replace("{name: GangPermit}, ", "")
GPU = "nvidia.com/gpu"


def job_pods(cluster: GangCluster, *numbers: int) -> None:
    """Pods of the Job `work`."""
    for number in numbers:
        pod = make_pod(f"work-{number}", gpus=8, scheduler_name="gangs")
        pod.metadata.owner_references = [model.OwnerReference("Job", "work", "uid-work", "batch/v1", controller=True)]
        cluster.create(PODS, pod)


def add_job(cluster: GangCluster, **annotations: str) -> None:
    metadata = model.ObjectMeta(name="work", namespace="default", uid="uid-work", annotations=annotations)
    cluster.create(JOBS, model.Job(metadata, model.JobSpec(parallelism=2, completions=2)))


@pytest.mark.parametrize(
    ("annotations", "alone"),
    [pytest.param({}, 1, id="no gang"), pytest.param({"topology.scheduler/gpu-count": "16"}, 0, id="a gang by GPUs")],
)
def test_pods_that_come_before_their_job_find_out_what_they_are(annotations: dict[str, str], alone: int) -> None:
    cluster = GangCluster()
    job_pods(cluster, 0)

    async def story() -> None:
        async with cluster.scheduler() as scheduler:
            await cluster.until(lambda: scheduler.queue.counts()["gated"] == 1)
            add_job(cluster, **annotations)
            await cluster.until(lambda: (len(cluster.bound()), scheduler.queue.counts()["gated"]) == (alone, 1 - alone))
            job_pods(cluster, 1)
            await cluster.until(lambda: len(cluster.bound()) == 2)

    cluster.play(story)


def test_a_member_that_somebody_else_binds_is_not_placed_again() -> None:
    cluster = GangCluster(leaves=1)
    cluster.add_gang("a", 3)
    others: list[str] = []

    def interfere(verb: str, resource: Resource[Any], name: str) -> Exception | None:
        if verb == "bind" and name == "a-1" and not others:
            others.append(name)
            cluster.server.bind("default", name, "", "l1-n3", {})
        return None

    async def story() -> None:
        async with cluster.scheduler(interfere) as scheduler:
            await cluster.until(lambda: len(cluster.bound("a")) == 3 and not scheduler.cache.assumed)
            await cluster.until(lambda: not list(scheduler.queue))
            cluster.server.delete(PODS, "a-1", grace_period_seconds=0)
            await cluster.until(lambda: scheduler.cache.nodes.view().requested(GPU).sum() == 16)

    cluster.play(story)


def test_a_member_that_somebody_else_binds_counts_for_those_that_are_held() -> None:
    cluster = GangCluster()
    cluster.add_group("a", 3)
    cluster.add_pods("a", 0, 1)

    async def story() -> None:
        async with cluster.scheduler() as scheduler:
            await cluster.until(lambda: scheduler.queue.counts()["gated"] == 2)
            labels = {"scheduling.x-k8s.io/pod-group": "a"}
            cluster.create(PODS, make_pod("a-2", gpus=8, labels=labels, scheduler_name="another", node="l1-n0"))
            await cluster.until(lambda: len(cluster.bound("a")) == 3)

    cluster.play(story)


def test_a_gang_whose_profile_no_longer_knows_gangs_is_bound_pod_by_pod() -> None:
    cluster = GangCluster()
    cluster.add_group("a", 4)
    cluster.add_pods("a", 0, 1)

    async def story() -> None:
        async with cluster.scheduler() as scheduler:
            await cluster.until(lambda: scheduler.queue.counts()["gated"] == 2)
            scheduler.use(config.load(WITHOUT_GANGS, "test"))
            await cluster.until(lambda: len(cluster.bound("a")) == 2)

    cluster.play(story)


def test_members_of_different_schedulers_are_refused_until_one_of_them_goes() -> None:
    cluster = GangCluster()
    two = PROFILE + PROFILE.partition("profiles:\n")[2].replace("schedulerName: gangs", "schedulerName: more")
    cluster.add_gang("a", 2)
    labels, leaf = {"scheduling.x-k8s.io/pod-group": "a"}, {"gangline.dev/topology-required": "leaf"}
    cluster.create(PODS, make_pod("a-2", gpus=8, labels=labels, annotations=leaf, scheduler_name="more"))

    async def story() -> None:
        async with cluster.scheduler() as scheduler:
            scheduler.use(config.load(two, "test"))
            await cluster.until(lambda: "differ in schedulerName: gangs of a-0, more of a-2" in cluster.message("a-0"))
            cluster.server.delete(PODS, "a-2", grace_period_seconds=0)
            await cluster.until(lambda: len(cluster.bound("a")) == 2)

    cluster.play(story)


@pytest.mark.parametrize("name", ["of nobody here", "of a profile that knows no gangs"])
def test_a_member_with_another_scheduler_name_is_named_where_its_gang_waits(name: str) -> None:
    cluster = GangCluster()
    plain = "- schedulerName: plain\n"
    cluster.add_group("a", 3)
    cluster.add_pods("a", 0, 1)
    elsewhere = "another" if name == "of nobody here" else "plain"
    cluster.add_pods("a", 2, scheduler_name=elsewhere, node_selector={"no": "where"})

    async def story() -> None:
        async with cluster.scheduling(PROFILE + plain):
            await cluster.until(lambda: "not decided with them" in cluster.message("a-0"))

    cluster.play(story)

    said = f"2 of 3 are there; not decided with them: a-2 (schedulerName {elsewhere})"
    assert all(said in cluster.message(f"a-{number}") for number in range(2))


def test_a_profile_that_may_bind_a_gang_in_part_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = GangCluster()
    plain = "- schedulerName: plain\n  plugins: {multiPoint: {}}\n"

    async def story() -> None:
        async with cluster.scheduling(PROFILE + plain) as scheduler:
            for number in range(2):
                scheduler.use(config.load(PROFILE + plain + f"# {number}", "test"))

    caplog.set_level("INFO")
    cluster.play(story)

    why = "no plugin makes the pods of a gang one unit, so a gang may be bound in part"
    assert [said for each in caplog.records if "in part" in (said := each.getMessage())] == [
        f"profile plain: {why}; where there are gangs, enable GangPermit"
    ]


def test_a_gang_that_runs_stays_scheduled_while_more_members_find_no_room() -> None:
    cluster = GangCluster(leaves=1)
    cluster.add_group("a", 2)
    cluster.add_pods("a", *range(6))

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound("a")) == 4)
            await cluster.until(lambda: sum("no room" in cluster.message(f"a-{n}") for n in range(6)) == 2)

    cluster.play(story)

    assert cluster.phase("a") == "Scheduled"


def test_a_group_object_that_goes_while_its_pods_are_bound_leaves_nothing_reserved() -> None:
    gangs = Gangs(fabric())
    decided = gangs.decide(gangs.gang("a", 4))
    assert isinstance(decided, GroupDecision)

    gangs.cache.store(SCHEDULER_PLUGINS_POD_GROUPS).remove("default", "a")
    for member in decided.members:
        give_back(gangs.runtime, gangs.cache, member.cycle, member.pod, member.node)

    assert not gangs.cache.pods and not len(gangs.handle.waiting)


def test_a_plugin_that_fails_to_unreserve_keeps_no_member_of_a_gang() -> None:
    class Clumsy:
        name = "Clumsy"

        @hookimpl
        def reserve(self, pod: PodInfo) -> Status | None:
            return unschedulable("not the last one") if pod.name == "a-3" else None

        @hookimpl
        def unreserve(self, pod: PodInfo) -> None:
            raise RuntimeError(f"{pod.name} is lost")

    gangs = Gangs(fabric(spines=1), Clumsy)

    decided = gangs.decide(gangs.gang("a", 4))

    assert isinstance(decided, GroupRejection)
    assert not gangs.cache.pods and not gangs.cache.nodes.requested.any()


def test_a_plugin_that_breaks_off_its_placements_fails_the_group_alone() -> None:
    class Broken:
        name = "Broken"

        @hookimpl
        def placement_generate(self) -> Iterator[Placement]:
            raise KeyError("rack")
            yield

    gangs = Gangs(fabric(), Broken)

    decided = gangs.decide(gangs.gang("a", 2))

    assert isinstance(decided, GroupRejection) and decided.is_error
    assert "Broken" in decided.message and "rack" in decided.message


class Parts:
    """Every pod is in the one subgroup of one group, which falls back to the spine after two minutes."""

    version = 0

    def of(self, pod: PodInfo) -> Membership:
        levels = TopologyConstraint(fallback=(FallbackStep("leaf"), FallbackStep("spine", 120.0)))
        return Membership(PodGroup("default", "a", "test", 6, subgroups=(SubGroup("workers", 6, levels),)), "workers")

    def annotations(self, pod: PodInfo) -> dict[str, str]:
        return {}


def test_the_fallback_of_a_subgroup_is_tried_when_its_time_comes() -> None:
    gangs = Gangs(fabric(), grouping=Parts())
    pods = [gangs.pod("a", number) for number in range(6)]

    at_once = gangs.decide(pods)

    assert isinstance(at_once, GroupRejection) and at_once.retry_after == pytest.approx(120.0)
    assert len(gangs.place(pods, waited=120.0)) == 6
