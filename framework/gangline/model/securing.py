"""What `gangline certs` keeps up to date: Secrets, and whom the API server trusts when it calls a webhook."""

from __future__ import annotations

from gangline.model.base import Object, ObjectMeta


class Secret(Object):
    """Data that few may read; the API has it in base64."""

    metadata: ObjectMeta
    type: str = ""
    data: dict[str, bytes] | None = None


class WebhookClientConfig(Object):
    """How the API server reaches a webhook; ``ca_bundle`` is PEM."""

    ca_bundle: bytes | None = None


class Webhook(Object):
    """One webhook of a registration."""

    name: str
    client_config: WebhookClientConfig


class WebhookConfiguration(Object):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: ObjectMeta
    webhooks: list[Webhook] = []
