"""Keeps a webhook's TLS Secret, and the CAs that the API server trusts for the webhook, up to date on a cluster.

Rules
- Trust goes first: the API server trusts a new CA before any server can have a certificate of this CA.
- Every write names the resourceVersion that it is based on; after a Conflict everything is read and decided again.
- If nothing has to change, nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random

from gangline import certificates
from gangline.api.plugin import Clock
from gangline.certificates import Bundle
from gangline.errors import Conflict, InvalidObject, NotFound
from gangline.kube.interface import Client, PatchKind
from gangline.kube.resources import SECRETS, Resource
from gangline.model import ObjectMeta, Secret, WebhookConfiguration

TYPE = "kubernetes.io/tls"
ATTEMPTS = 10
BETWEEN = 0.2
"""Seconds between two attempts, at most."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A webhook configuration."""

    resource: Resource[WebhookConfiguration]
    name: str

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A certificate for a Service, its Secret, and the webhook configurations that have to trust the certificate."""

    namespace: str
    service: str
    secret: str
    registrations: Sequence[Registration]
    lifetime: timedelta
    renew_before: timedelta


async def ensure(client: Client, wanted: Wanted, clock: Clock) -> str:
    """Create or renew the certificate and the trust in it, as needed; returns one line that says what was done.

    Raises NotFound for a webhook configuration that does not exist (after the Secret is written), InvalidObject for a
    Secret of another type, and other ApiErrors.
    """
    attempts = AsyncRetrying(
        retry=retry_if_exception_type(Conflict),
        wait=wait_random(0, BETWEEN),
        stop=stop_after_attempt(ATTEMPTS),
        reraise=True,
    )
    return await attempts(_ensure, client, wanted, clock)


async def _ensure(client: Client, wanted: Wanted, clock: Clock) -> str:
    now = datetime.fromtimestamp(clock.now(), UTC)
    stored = await _stored(client, wanted)
    names = certificates.server_names(wanted.service, wanted.namespace)
    bundle = Bundle.of(stored.data or {}) if stored else None
    why = certificates.why_renew(bundle, names, now, wanted.renew_before) if bundle else None
    done, written = "unchanged", set[Registration]()
    if bundle is None or why is not None:
        bundle = certificates.issue(names, now, wanted.lifetime, bundle.authorities if bundle else b"")
        for registration in wanted.registrations:
            with suppress(NotFound):  # the Secret is needed in any case; the error is raised after it is written
                written |= await _trust(client, registration, bundle.authorities, now)
        await _store(client, wanted, stored, bundle)
        done = f"renewed ({why})" if why else "created"
    for registration in wanted.registrations:
        written |= await _trust(client, registration, bundle.authorities, now)
    said = [f"secret {wanted.namespace}/{wanted.secret}: {done}, valid until {bundle.expires:%Y-%m-%d}"]
    said += [f"{each}: caBundle {'written' if each in written else 'unchanged'}" for each in wanted.registrations]
    return "; ".join(said)


async def _stored(client: Client, wanted: Wanted) -> Secret | None:
    try:
        found = await client.get(SECRETS, wanted.secret, namespace=wanted.namespace)
    except NotFound:
        return None
    if found.type != TYPE:  # the type of a Secret cannot be changed
        where = f"secret {wanted.namespace}/{wanted.secret}: type"
        raise InvalidObject(where, found.type, f"expected {TYPE}; delete it, or choose another name")
    return found


async def _store(client: Client, wanted: Wanted, stored: Secret | None, bundle: Bundle) -> None:
    """Write the Secret. Raises Conflict if the Secret has changed since it was read."""
    if stored is None:
        metadata = ObjectMeta(name=wanted.secret, namespace=wanted.namespace)
        await client.create(SECRETS, Secret(metadata, TYPE, bundle.data))
        return
    metadata = stored.metadata
    patch = {"metadata": {"resourceVersion": metadata.resource_version, "uid": metadata.uid}, "data": bundle.data}
    await client.patch(SECRETS, metadata.name, patch, namespace=metadata.namespace)


async def _trust(client: Client, registration: Registration, authorities: bytes, now: datetime) -> set[Registration]:
    """Add these CAs to those that the API server trusts for a webhook configuration.

    Returns the configuration if it was written, else an empty set. Raises NotFound, and Conflict if the configuration
    has changed since it was read.
    """
    found = await client.get(registration.resource, registration.name)
    changed = []
    for webhook in found.webhooks:
        trusted = webhook.client_config.ca_bundle or b""
        if (bundle := certificates.merged(now, authorities, trusted)) != trusted:
            changed.append({"name": webhook.name, "clientConfig": {"caBundle": bundle}})
    if not changed:
        return set()
    patch = {"metadata": {"resourceVersion": found.metadata.resource_version}, "webhooks": changed}
    await client.patch(registration.resource, registration.name, patch, kind=PatchKind.STRATEGIC)
    return {registration}
