"""Serves reviews over TLS, and health and metrics beside them over plain HTTP."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.aiohttp import make_aiohttp_handler

from gangline.health import routes
from gangline.wire import CLAIM, GpuClaim
from gangline_webhook import injecting, reviewing, validating
from gangline_webhook.claims import Claims
from gangline_webhook.pods import Pod
from gangline_webhook.reviewing import Malformed, Review, Verdict

log = logging.getLogger(__name__)

LARGEST = 8 << 20
"""Bytes of a review: two objects of the largest size that the API server takes, and some."""
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

Decide = Callable[[Review], Awaitable[Verdict]]


class Metrics:
    """What the webhook counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, GCCollector, PlatformCollector):
            collector(registry=self.registry)
        self.requests = Counter(
            "gangline_webhook_requests",
            "Reviews by outcome: allowed, patched, denied, malformed, error.",
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

    def __init__(self, claims: Claims, options: injecting.Options, metrics: Metrics) -> None:
        self._claims = claims
        self._options = options
        self._metrics = metrics

    def application(self) -> web.Application:
        """The two paths; everything else is 404."""
        app = web.Application(client_max_size=LARGEST)
        for path, decide in (("/mutate", self.mutate), ("/validate", self.validate)):
            app.router.add_post(path, self._handler(path, decide))
        return app

    async def mutate(self, review: Review) -> Verdict:
        """What to change in an object; nothing unless it is a new pod."""
        request = review.request
        if request.kind.kind != "Pod" or request.operation != "CREATE" or request.sub_resource:
            return Verdict()
        pod = reviewing.decode(review, request.object, Pod)
        if not (name := pod.annotation(CLAIM)):
            return injecting.mutate(pod, None, self._options)
        found = await self._claims.find(request.namespace, name)
        verdict = injecting.mutate(pod, found.claim, self._options)
        if not found.doubt:
            return verdict
        warning = f"GpuClaim {request.namespace}/{name} {found.doubt}"
        return Verdict(patch=verdict.patch, warnings=(*verdict.warnings, warning))

    async def validate(self, review: Review) -> Verdict:
        """Whether an object may be stored as it is."""
        request = review.request
        if request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
            return Verdict()
        updated = request.operation == "UPDATE"
        if request.kind.kind == "Pod" and updated:
            pod, before = (reviewing.decode(review, part, Pod) for part in (request.object, request.old_object))
            return validating.validate_pod(pod, before)
        if request.kind.kind == "GpuClaim":
            return _validate_claim(review, updated)
        return Verdict()

    def _handler(self, path: str, decide: Decide) -> Callable[[web.Request], Awaitable[web.Response]]:
        duration = self._metrics.duration.labels(path)

        async def handle(request: web.Request) -> web.Response:
            started = time.perf_counter()
            status, body, outcome = await _reply(request, decide)
            self._metrics.requests.labels(path, outcome).inc()
            duration.observe(time.perf_counter() - started)
            return web.Response(body=body, status=status, content_type="application/json")

        return handle


def _validate_claim(review: Review, updated: bool) -> Verdict:
    """A claim that does not fit is refused, not malformed: an older CRD may let such claims through."""
    try:
        claim = reviewing.decode(review, review.request.object, GpuClaim)
    except Malformed as error:
        return Verdict(allowed=False, message=f"GpuClaim {review.request.name}: {error.why}")
    try:
        old = reviewing.decode(review, review.request.old_object, GpuClaim) if updated else None
    except Malformed:
        old = None
    return validating.validate_claim(claim, old)


async def _reply(request: web.Request, decide: Decide) -> tuple[int, bytes, str]:
    """Status, body and outcome; a request that breaks off is left to the server."""
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        why = f"a review may have {LARGEST} bytes"
        return 413, reviewing.failure("", reviewing.VERSIONS[0], 413, why), "malformed"
    except web.RequestPayloadError as error:
        why = f"the body cannot be read: {error}"
        return 400, reviewing.failure("", reviewing.VERSIONS[0], 400, why), "malformed"
    try:
        review = reviewing.read(body)
    except Malformed as error:
        return 400, reviewing.failure(error.uid, error.version, 400, str(error)), "malformed"
    try:
        verdict = await decide(review)
    except Malformed as error:
        return 400, reviewing.failure(error.uid, error.version, 400, str(error)), "malformed"
    except Exception as error:  # one review must not end the server
        log.exception("%s: review %s failed", request.path, review.request.uid)
        why = f"internal error: {type(error).__name__}"
        return 500, reviewing.failure(review.request.uid, review.api_version, 500, why), "error"
    outcome = "denied" if not verdict.allowed else "patched" if verdict.patch else "allowed"
    return 200, reviewing.answer(review, verdict), outcome


def health(registry: CollectorRegistry, ready: Callable[[], bool]) -> web.Application:
    """Liveness, readiness and metrics."""
    app = web.Application()
    app.add_routes(routes(live={}, ready={"reviews": lambda: None if ready() else "not listening"}))
    app.add_routes([web.get("/metrics", make_aiohttp_handler(registry))])
    return app
