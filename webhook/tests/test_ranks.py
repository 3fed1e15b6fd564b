"""Ranks: what a pod of an indexed Job gets that asks for them, and what its user is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from gangline.errors import Forbidden, NotFound, Unavailable
from gangline.kube.interface import Client
from gangline.kube.resources import JOBS, SERVICES
from gangline.model import Job, Service
from gangline.wire.custom_resources import GpuClaim
from gangline_webhook.injecting import Options, mutate
from gangline_webhook.pods import Pod
from gangline_webhook.ranks import Behind, NewJob, Ranks, doubts_of_job, ranks_of
from gangline_webhook.reviewing import Verdict
from gangline_webhook.workloads import FORBIDDEN, UNREADABLE, AskedWorkloads

from .reviews import Document, container, env, patched, pod

INDEX, RANKS = "batch.kubernetes.io/job-completion-index", "gangline.dev/ranks"
FROM_INDEX = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{INDEX}']"}}
OPTIONS = Options(frozenset({"gpu-scheduler"}))
TWO_GPUS = {"limits": {"nvidia.com/gpu": "2"}}


def worker(*containers: Document, ranks: str = "pods", subdomain: str = "train", **metadata: Any) -> Document:
    """The third pod of the Job train."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    given = {"labels": {"job-name": "train"}, "ownerReferences": [owner], "name": "train-2-x7k2p", **metadata}
    made = pod(*containers, annotations={INDEX: "2", RANKS: ranks}, **given)
    if subdomain:
        made["spec"]["subdomain"] = subdomain
    return made


def job(**spec: Any) -> Job:
    whole = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", **spec}
    return msgspec.convert({"metadata": {"name": "train", "namespace": "team", "uid": "u"}, "spec": whole}, Job)


def service(cluster_ip: str = "None", **selector: str) -> Service:
    spec = {"clusterIP": cluster_ip, "selector": selector or {"job-name": "train"}}
    return msgspec.convert({"metadata": {"name": "train"}, "spec": spec}, Service)


WHOLE = Behind(job(), service(), is_service_known=True)


def ranks(document: Document, behind: Behind = WHOLE, claim: GpuClaim | None = None) -> Ranks:
    return ranks_of(msgspec.convert(document, Pod), "team", claim, behind)


def decide(document: Document, behind: Behind = WHOLE) -> Verdict:
    return mutate(msgspec.convert(document, Pod), None, OPTIONS, ranks(document, behind))


def values(document: Document, behind: Behind = WHOLE, claim: GpuClaim | None = None) -> dict[str, Any]:
    """Each variable with its value; "index" for what is read from the completion index."""
    given = msgspec.to_builtins(ranks(document, behind, claim).variables)
    return {each["name"]: "index" if each.get("valueFrom") == FROM_INDEX else each["value"] for each in given}


def test_a_process_in_each_pod_has_its_rank_and_finds_the_first() -> None:
    assert values(worker()) == {
        "RANK": "index",
        "NODE_RANK": "index",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "train-0.train.team.svc",
        "MASTER_PORT": "29500",
    }


def test_a_process_for_each_gpu_is_started_by_torchrun_which_has_its_arguments() -> None:
    sizes = {"NODE_RANK": "index", "NNODES": "4", "NPROC_PER_NODE": "2"}
    leader = {"MASTER_ADDR": "train-0.train.team.svc", "MASTER_PORT": "29500"}

    found = values(worker(container(resources=TWO_GPUS), container("side"), ranks="gpus"))

    assert found == {**sizes, "WORLD_SIZE": "8", **leader, **{f"PET_{k}": v for k, v in {**sizes, **leader}.items()}}


def test_the_gpus_of_a_claim_count() -> None:
    claim = msgspec.convert({"metadata": {"name": "four"}, "spec": {"devices": {"count": 4}}}, GpuClaim)

    assert values(worker(ranks="gpus"), claim=claim)["WORLD_SIZE"] == "16"


def test_every_container_gets_them_before_its_own_variables_which_stay() -> None:
    own = [{"name": "URL", "value": "tcp://$(MASTER_ADDR)"}, {"name": "WORLD_SIZE", "value": "9"}]
    document = worker(container(env=own), container("side"), init=[container("setup")])

    verdict = decide(document)
    result = patched(document, verdict.patch)

    names = [each["name"] for each in env(result)]
    assert names == [
        "RANK",
        "NODE_RANK",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "URL",
        "WORLD_SIZE",
    ]
    assert env(result)[-2:] == own
    assert env(result, "side") == env(result, "setup")
    assert env(result, "side")[0] == {"name": "RANK", "valueFrom": FROM_INDEX}
    assert verdict.warnings == ()
    assert decide(result) == Verdict()


@pytest.mark.parametrize(
    ("document", "behind", "says"),
    [
        (worker(), Behind(job(completionMode="NonIndexed")), "Job train is not indexed, so its pods have no rank"),
        (worker(), Behind(job(completionMode=None)), "Job train is not indexed, so its pods have no rank"),
        (worker(), Behind(job(parallelism=2)), "Job train runs 2 of its 4 pods at once"),
        (worker(ranks="yes"), WHOLE, "'yes' is not one of pods, gpus"),
        (worker(ranks="gpus"), WHOLE, "the pods ask for no nvidia.com/gpu"),
        (worker(), Behind(), "Job team/train does not exist"),
        (worker(), Behind(doubt=FORBIDDEN), "Job team/train cannot be read: the webhook has no right"),
        (worker(ownerReferences=[]), WHOLE, "only pods of indexed Jobs have a rank"),
        (worker(labels={"jobset.sigs.k8s.io/jobset-name": "s"}), WHOLE, "ranks of a JobSet reach over several Jobs"),
        (worker(labels={"leaderworkerset.sigs.k8s.io/name": "s"}), WHOLE, "a LeaderWorkerSet sets LWS_LEADER_ADDRESS"),
    ],
)
def test_where_a_rank_is_not_known_nothing_is_added_and_the_reason_is_told(
    document: Document, behind: Behind, says: str
) -> None:
    verdict = decide(document, behind)

    assert (verdict.allowed, verdict.patch) == (True, ())
    (warning,) = verdict.warnings
    assert warning.startswith(f"{RANKS}: {says}")


def test_a_pod_whose_job_cannot_be_read_at_the_moment_is_refused_so_that_it_is_made_again() -> None:
    verdict = decide(worker(), Behind(doubt=UNREADABLE, is_passing=True))

    assert (verdict.allowed, verdict.message) == (
        False,
        f"pod train-2-x7k2p: {RANKS}: Job team/train cannot be read now; try again",
    )


@pytest.mark.parametrize(
    ("subdomain", "behind", "says", "address"),
    [
        ("", Behind(job()), "MASTER_ADDR is not set: spec.subdomain has to name a headless Service", None),
        ("train", Behind(job(), None, True), "there is no Service train; MASTER_ADDR resolves once", "train-0"),
        ("train", Behind(job(), service("10.0.0.7"), True), "Service train is not headless", "train-0"),
        ("train", Behind(job(), service(app="x"), True), "Service train selects app=x, not the pods", "train-0"),
    ],
)
def test_what_is_missing_for_the_name_of_the_first_pod_is_told(
    subdomain: str, behind: Behind, says: str, address: str | None
) -> None:
    document = worker(subdomain=subdomain)

    assert values(document, behind).get("MASTER_ADDR", "").partition(".")[0] == (address or "")
    (warning,) = ranks(document, behind).warnings
    assert warning.startswith(f"{RANKS}: {says}")


def test_nothing_is_missing_where_the_user_names_the_first_pod() -> None:
    named = worker(container(env=[{"name": "MASTER_ADDR", "value": "elsewhere"}]), subdomain="")

    assert ranks(named, Behind(job())).warnings == ()


def test_a_pod_without_its_index_gets_nothing() -> None:
    document = worker()
    del document["metadata"]["annotations"][INDEX]

    (warning,) = ranks(document).warnings
    assert warning == f"{RANKS}: the pod has no annotation {INDEX}"


# New Jobs


def new_job(annotations: Mapping[str, str], resources: Any = None, **spec: Any) -> NewJob:
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"subdomain": "train", "containers": [container(resources=resources or {})]},
    }
    whole = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": template, **spec}
    return msgspec.convert({"metadata": {"name": "train", "namespace": "team"}, "spec": whole}, NewJob)


@pytest.mark.parametrize(
    ("new", "behind", "says"),
    [
        (new_job({RANKS: "pods"}), WHOLE, ""),
        (new_job({}, completionMode="NonIndexed"), Behind(), ""),
        (new_job({RANKS: "gpus", "gpu.scheduling/claim": "four"}), WHOLE, ""),
        (new_job({RANKS: "gpus"}), WHOLE, "the pods ask for no nvidia.com/gpu"),
        (new_job({RANKS: "gpus"}, TWO_GPUS), WHOLE, ""),
        (new_job({RANKS: "pods"}, completionMode="NonIndexed"), WHOLE, "Job train is not indexed"),
        (new_job({RANKS: "pods"}), Behind(is_service_known=True), "there is no Service train"),
        (new_job({RANKS: "pods"}), Behind(doubt=UNREADABLE), ""),
    ],
)
def test_the_user_of_a_new_job_is_told_what_nobody_could_tell_its_pods(new: NewJob, behind: Behind, says: str) -> None:
    told = doubts_of_job(new, "team", behind)

    assert len(told) == bool(says) and all(each.startswith(f"{RANKS}: {says}") for each in told)


# Looking up


class FakeClient:
    """Answers with what it has; an exception is raised, None is hung on."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    async def get(self, resource: Any, name: str, *, namespace: str) -> Any:
        assert namespace == "team"
        answer = self._answers.get(resource.plural, NotFound(404, "NotFound", name))
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await asyncio.Event().wait()
        return answer


async def looked_up(uid: str = "u", subdomain: str = "train", **answers: Any) -> Behind:
    """What is found behind a pod; None is an answer that never comes."""
    patience = 0.05 if None in answers.values() else 60.0
    return await AskedWorkloads(cast(Client, FakeClient(**answers)), patience).find("team", "train", uid, subdomain)


async def test_the_job_and_the_service_are_asked_for() -> None:
    made, beside = job(), service()
    both: dict[str, Any] = {JOBS.plural: made, SERVICES.plural: beside}

    assert await looked_up(**both) == Behind(made, beside, is_service_known=True)
    assert await looked_up("another", **both) == Behind(None, beside, is_service_known=True)
    assert await looked_up(subdomain="", **both) == Behind(made)
    assert await looked_up(jobs=made) == Behind(made, None, is_service_known=True)
    assert await looked_up() == Behind(is_service_known=True)


@pytest.mark.parametrize(
    ("answer", "behind"),
    [
        (Unavailable(503, "ServiceUnavailable", "later"), Behind(doubt=UNREADABLE, is_passing=True)),
        (Forbidden(403, "Forbidden", "no"), Behind(doubt=FORBIDDEN)),
        (None, Behind(doubt=UNREADABLE, is_passing=True)),
    ],
)
async def test_an_api_server_that_does_not_say_is_told_from_one_that_has_nothing(answer: Any, behind: Behind) -> None:
    assert await looked_up(jobs=answer) == behind
