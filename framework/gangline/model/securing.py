"""Secrets and webhook configurations, which `gangline certs` writes, and the reviews that authorize clients."""

from __future__ import annotations

import msgspec

from gangline.model.base import Object, ObjectMeta


class Secret(Object):
    """A Secret; the API has its data in base64."""

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


class UserInfo(Object):
    """The user of a token or a certificate."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class TokenReviewSpec(Object):
    """The token to review."""

    token: str = ""


class TokenReviewStatus(Object):
    """The user of the token, if it is valid."""

    authenticated: bool = False
    user: UserInfo = msgspec.field(default_factory=UserInfo)


class TokenReview(Object):
    """A TokenReview: asks for the user of a token."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: TokenReviewSpec = msgspec.field(default_factory=TokenReviewSpec)
    status: TokenReviewStatus = msgspec.field(default_factory=TokenReviewStatus)


class NonResourceAttributes(Object):
    """A path that does not belong to an object, such as /metrics, and the verb of the request."""

    path: str = ""
    verb: str = ""


class ResourceAttributes(Object):
    """Objects, and the verb of the request; no namespace stands for all namespaces."""

    namespace: str = ""
    verb: str = ""
    resource: str = ""
    group: str = ""
    subresource: str = ""


class SubjectAccessReviewSpec(Object):
    """The user, and the path or the objects of a request."""

    non_resource_attributes: NonResourceAttributes | None = None
    user: str = ""
    groups: list[str] = []
    uid: str = ""
    extra: dict[str, list[str]] = {}
    resource_attributes: ResourceAttributes | None = None


class SubjectAccessReviewStatus(Object):
    """Whether the request is allowed."""

    allowed: bool = False


class SubjectAccessReview(Object):
    """A SubjectAccessReview: asks whether a user may do a request."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: SubjectAccessReviewSpec = msgspec.field(default_factory=SubjectAccessReviewSpec)
    status: SubjectAccessReviewStatus = msgspec.field(default_factory=SubjectAccessReviewStatus)
