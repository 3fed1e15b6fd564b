"""Serves reviews over TLS, and health and metrics beside them over plain HTTP.

What a review is answered
- If its content cannot be read or is too large, it is refused with HTTP 200, because a refusal is a verdict.
- If the webhook fails or is busy, or the request is incomplete: HTTP 500, 503, 504 or 408, and failurePolicy decides.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram

from gangline.process.endpoints import Pages, add_process
from gangline.telemetry.exposition import Exposition
from gangline.wire.custom_resources import CLAIM, GpuClaim
from gangline_webhook import injecting, ranks, reviewing, validating
from gangline_webhook.bodies import Bodies, Refused, too_many_parts
from gangline_webhook.claims import Claims, Found
from gangline_webhook.pods import Pod
from gangline_webhook.reviewing import Malformed, Request, Review, Verdict
from gangline_webhook.workloads import NoWorkloads, Workloads

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 160
"""More connections than API servers open at once; each may cost SMALL bytes and the memory of TLS."""
DEADLINE = 2.0
"""Seconds for a verdict, once the review has been read."""
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

Decide = Callable[[Review], Awaitable[Verdict]]


class Metrics:
    """What the webhook counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        add_process(self.registry)
        self.requests = Counter(
            "gangline_webhook_requests",
            "Reviews by outcome: allowed, patched, denied, malformed, error, busy, slow.",
            ("path", "outcome"),
            registry=self.registry,
        )
        self.duration = Histogram(
            "gangline_webhook_request_duration_seconds",
            "From the arrival of a request's head to its answer.",
            ("path",),
            buckets=BUCKETS,
            registry=self.registry,
        )


class Reviewer:
    """Answers reviews; it keeps nothing between two of them."""

    def __init__(
        self,
        claims: Claims,
        options: injecting.Options,
        metrics: Metrics,
        bodies: Bodies | None = None,
        workloads: Workloads | None = None,
    ) -> None:
        self._claims = claims
        self._workloads = workloads or NoWorkloads()
        self._options = options
        self._metrics = metrics
        self._bodies = bodies or Bodies()

    def application(self) -> web.Application:
        """The two paths; everything else is 404."""
        app = web.Application()
        for path, decide in (("/mutate", self.mutate), ("/validate", self.validate)):
            app.router.add_post(path, self._handler(path, decide))
        return app

    async def mutate(self, review: Review) -> Verdict:
        """The changes of an object; none unless it is a new pod."""
        request = review.request
        if request.kind.kind != "Pod" or request.operation != "CREATE" or request.sub_resource:
            return Verdict()
        pod = reviewing.decode(review, request.object, Pod)
        if why := pod.too_large():
            return Verdict(False, why)
        name = pod.annotation(CLAIM)
        found = await self._claims.find(request.namespace, name) if name else Found()
        verdict = injecting.mutate(pod, found.claim, self._options, await self._ranks(pod, request, found.claim))
        if not found.doubt:
            return verdict
        warning = f"GpuClaim {request.namespace}/{name} {found.doubt}"
        return replace(verdict, warnings=(*verdict.warnings, warning))

    async def _ranks(self, pod: Pod, request: Request, claim: GpuClaim | None) -> ranks.Ranks:
        if not ranks.asks_for_ranks(pod):
            return injecting.NO_RANKS
        behind, job = ranks.NOTHING, ranks.job_of(pod)
        if job is not None:
            behind = await self._workloads.find(request.namespace, job.name, job.uid, pod.spec.subdomain)
        return ranks.ranks_of(pod, request.namespace, claim, behind)

    async def validate(self, review: Review) -> Verdict:
        """Whether an object may be stored as it is."""
        request = review.request
        if request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
            return Verdict()
        updated = request.operation == "UPDATE"
        if request.kind.kind == "Pod" and updated:
            pod, before = (reviewing.decode(review, part, Pod) for part in (request.object, request.old_object))
            return validating.validate_pod(pod, before)
        if request.kind.kind == "Job" and not updated:
            job = reviewing.decode(review, request.object, ranks.NewJob)
            behind = await self._workloads.find(request.namespace, "", "", job.spec.template.spec.subdomain)
            return Verdict(warnings=ranks.doubts_of_job(job, request.namespace, behind))
        if request.kind.kind == "GpuClaim":
            return _validate_claim(review, updated)
        return Verdict()

    def _handler(self, path: str, decide: Decide) -> Callable[[web.Request], Awaitable[web.Response]]:
        duration = self._metrics.duration.labels(path)

        async def handle(request: web.Request) -> web.Response:
            started = time.perf_counter()
            status, body, outcome = await _reply(request, decide, self._bodies)
            self._metrics.requests.labels(path, outcome).inc()
            duration.observe(time.perf_counter() - started)
            response = web.Response(body=body, status=status, content_type="application/json")
            if not request.content.at_eof():
                response.force_close()
            return response

        return handle


def _validate_claim(review: Review, updated: bool) -> Verdict:
    """A claim that does not fit the struct is refused, but it is no malformed review: an older CRD may allow it."""
    try:
        claim = reviewing.decode(review, review.request.object, GpuClaim)
    except Malformed as error:
        return Verdict(allowed=False, message=f"GpuClaim {review.request.name}: {error.why}")
    try:
        old = reviewing.decode(review, review.request.old_object, GpuClaim) if updated else None
    except Malformed:
        old = None
    return validating.validate_claim(claim, old)


async def _reply(request: web.Request, decide: Decide, bodies: Bodies) -> tuple[int, bytes, str]:
    """Status, body and outcome, whatever comes; a request that breaks off is left to the server."""
    try:
        async with bodies.read(request) as body:
            return await answered(request.path, body, decide)
    except Refused as error:
        uid = reviewing.uid_in(error.start)
        outcome = {408: "slow", 503: "busy"}.get(error.status, "malformed")
        return *_refusal(uid, reviewing.VERSIONS[0], error.status, str(error)), outcome


async def answered(path: str, body: bytearray, decide: Decide) -> tuple[int, bytes, str]:
    """Status, body and outcome of a review, whatever it holds."""
    uid, version = "", reviewing.VERSIONS[0]
    try:
        if why := too_many_parts(body):
            raise Malformed(reviewing.uid_in(body), version, why)
        review = reviewing.read(body)
        uid, version = review.request.uid, review.api_version
        async with asyncio.timeout(DEADLINE):
            verdict = await decide(review)
        outcome = "denied" if not verdict.allowed else "patched" if verdict.patch else "allowed"
        return 200, reviewing.answer(review, verdict), outcome
    except Malformed as error:
        return *_refusal(error.uid, error.version, 400, str(error)), "malformed"
    except TimeoutError:
        log.error("%s: review %s was not decided in %g s", path, uid, DEADLINE)
        return 504, reviewing.failure(uid, version, 504, f"no verdict within {DEADLINE:g} s"), "error"
    except Exception as error:  # one review must not end the server
        log.exception("%s: review %s failed", path, uid or "without a uid")
        return 500, reviewing.failure(uid, version, 500, f"internal error: {type(error).__name__}"), "error"


def _refusal(uid: str, version: str, code: int, why: str) -> tuple[int, bytes]:
    """Status and body: a verdict where there is a uid and the content is at fault, else a failure."""
    status = 200 if uid and code in (400, 413) else code
    return status, reviewing.failure(uid, version, code, why)


def pages(registry: CollectorRegistry, ready: Callable[[], bool]) -> Pages:
    """Liveness, readiness and metrics."""
    return Pages({}, {"reviews": lambda: None if ready() else "not listening"}, Exposition(registry))
