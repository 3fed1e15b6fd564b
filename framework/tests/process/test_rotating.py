"""The Secret and the trust of a webhook on a cluster: made, left alone, renewed, and never out of step."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from gangline.certificates import Bundle, issue, server_names
from gangline.errors import InvalidObject, NotFound, Unavailable
from gangline.kube.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Resource
from gangline.model import ObjectMeta, Secret, Webhook, WebhookClientConfig, WebhookConfiguration
from gangline.process.rotating import Registration, Wanted, ensure
from gangline.simulate import InMemoryServer, SimulatedClient
from gangline.testing import FakeClock

DAY = timedelta(days=1)
START = datetime(2026, 3, 1, tzinfo=UTC)
REGISTRATIONS = (Registration(MUTATING_WEBHOOKS, "hook"), Registration(VALIDATING_WEBHOOKS, "hook"))
WANTED = Wanted("gpu", "hook", "hook-cert", REGISTRATIONS, 365 * DAY, 30 * DAY)


class Cluster:
    """An API server with two registrations, time that stands still, and a client that fails as told."""

    def __init__(self) -> None:
        self.clock = FakeClock(START.timestamp())
        self.server = InMemoryServer(self.clock)
        self.failing: Resource[Any] | None = None
        self.client = SimulatedClient(self.server, faults=self._fault)

    async def register(self, trusted: bytes | None = None) -> None:
        webhooks = [Webhook(name, WebhookClientConfig(trusted)) for name in ("one", "two")]
        for registration in REGISTRATIONS:
            new = WebhookConfiguration(ObjectMeta(name=registration.name), webhooks)
            await self.client.create(registration.resource, new)

    async def bundle(self) -> Bundle:
        secret = await self.client.get(SECRETS, "hook-cert", namespace="gpu")
        assert secret.type == "kubernetes.io/tls"
        return Bundle.of(secret.data or {})

    async def trusted(self) -> list[bytes | None]:
        """The caBundle of every webhook."""
        found = [await self.client.get(each.resource, each.name) for each in REGISTRATIONS]
        return [webhook.client_config.ca_bundle for each in found for webhook in each.webhooks]

    def _fault(self, verb: str, resource: Resource[Any], name: str) -> Exception | None:
        return Unavailable(0, "Fault", "told to fail") if verb == "patch" and resource == self.failing else None


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_the_first_run_makes_the_secret_and_every_webhook_trusts_it(cluster: Cluster) -> None:
    await cluster.register()

    said = await ensure(cluster.client, WANTED, cluster.clock)

    assert said == (
        "secret gpu/hook-cert: created, valid until 2027-03-01; "
        "MutatingWebhookConfiguration hook: caBundle written; ValidatingWebhookConfiguration hook: caBundle written"
    )
    assert await cluster.trusted() == [(await cluster.bundle()).authorities] * 4


async def test_a_second_run_writes_nothing(cluster: Cluster) -> None:
    await cluster.register()
    await ensure(cluster.client, WANTED, cluster.clock)
    cluster.clock.advance(334 * DAY.total_seconds())
    before = cluster.server.version

    said = await ensure(cluster.client, WANTED, cluster.clock)

    assert cluster.server.version == before
    assert said.startswith("secret gpu/hook-cert: unchanged") and said.count("caBundle unchanged") == 2


async def test_a_renewal_keeps_the_old_authority_trusted(cluster: Cluster) -> None:
    await cluster.register()
    await ensure(cluster.client, WANTED, cluster.clock)
    old = await cluster.bundle()
    cluster.clock.advance(335 * DAY.total_seconds())

    said = await ensure(cluster.client, WANTED, cluster.clock)

    new = await cluster.bundle()
    assert "renewed (it ended on 2027-03-01), valid until 2028-01-30" in said
    assert new.certificate != old.certificate and new.authorities.endswith(old.authorities)
    assert await cluster.trusted() == [new.authorities] * 4


async def test_an_authority_is_trusted_before_a_server_can_have_its_certificate(cluster: Cluster) -> None:
    await cluster.register()
    await ensure(cluster.client, WANTED, cluster.clock)
    old = await cluster.bundle()
    cluster.clock.advance(335 * DAY.total_seconds())
    cluster.failing = SECRETS

    with pytest.raises(Unavailable):
        await ensure(cluster.client, WANTED, cluster.clock)

    assert await cluster.bundle() == old
    assert all(len(x509.load_pem_x509_certificates(each or b"")) == 2 for each in await cluster.trusted())


async def test_a_certificate_of_another_namespace_is_replaced(cluster: Cluster) -> None:
    other = issue(server_names("hook", "other"), START, 365 * DAY)
    metadata = ObjectMeta(name="hook-cert", namespace="gpu", labels={"kept": "yes"})
    await cluster.client.create(SECRETS, Secret(metadata, "kubernetes.io/tls", other.data))
    await cluster.register()

    said = await ensure(cluster.client, WANTED, cluster.clock)

    assert "renewed (it was not for hook.gpu)" in said
    stored = await cluster.client.get(SECRETS, "hook-cert", namespace="gpu")
    assert stored.metadata.labels == {"kept": "yes"}


async def test_garbage_in_a_ca_bundle_is_replaced_and_other_authorities_stay(cluster: Cluster) -> None:
    other = issue(("other",), START, 365 * DAY).authorities
    await cluster.register(b"\n")
    await ensure(cluster.client, WANTED, cluster.clock)
    ours = (await cluster.bundle()).authorities
    for registration in REGISTRATIONS:
        await cluster.client.patch(registration.resource, registration.name, {"webhooks": []})
        patch = {"webhooks": [{"name": "one", "clientConfig": {"caBundle": other}}]}
        await cluster.client.patch(registration.resource, registration.name, patch)

    await ensure(cluster.client, WANTED, cluster.clock)

    assert await cluster.trusted() == [ours + other] * 2


async def test_many_runs_at_once_agree(cluster: Cluster) -> None:
    await cluster.register()

    said = await asyncio.gather(*(ensure(cluster.client, WANTED, cluster.clock) for _ in range(5)))

    ours = (await cluster.bundle()).authorities
    assert sum(": created" in each for each in said) == 1
    assert all(ours in (each or b"") for each in await cluster.trusted())


async def test_a_missing_registration_is_an_error_and_the_secret_is_made_all_the_same(cluster: Cluster) -> None:
    with pytest.raises(NotFound, match="mutatingwebhookconfigurations"):
        await ensure(cluster.client, WANTED, cluster.clock)

    assert (await cluster.bundle()).certificate


async def test_a_secret_of_another_type_is_left_alone(cluster: Cluster) -> None:
    metadata = ObjectMeta(name="hook-cert", namespace="gpu")
    await cluster.client.create(SECRETS, Secret(metadata, "Opaque", {"mine": b"1"}))

    with pytest.raises(InvalidObject) as error:
        await ensure(cluster.client, WANTED, cluster.clock)

    expected = "secret gpu/hook-cert: type: 'Opaque': expected kubernetes.io/tls; delete it, or choose another name"
    assert str(error.value) == expected
