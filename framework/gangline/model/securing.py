"""What `gangline certs` keeps up to date, and what an API server is asked about whoever asks us."""

from __future__ import annotations

import msgspec

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


class UserInfo(Object):
    """Whom a token or a certificate stands for."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class TokenReviewSpec(Object):
    """The token in question."""

    token: str = ""


class TokenReviewStatus(Object):
    """Whose it is, if anybody's."""

    authenticated: bool = False
    user: UserInfo = msgspec.field(default_factory=UserInfo)


class TokenReview(Object):
    """Whom does this token stand for?"""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: TokenReviewSpec = msgspec.field(default_factory=TokenReviewSpec)
    status: TokenReviewStatus = msgspec.field(default_factory=TokenReviewStatus)


class NonResourceAttributes(Object):
    """A path that is no object, and what is done with it."""

    path: str = ""
    verb: str = ""


class SubjectAccessReviewSpec(Object):
    """Who wants what."""

    non_resource_attributes: NonResourceAttributes = msgspec.field(default_factory=NonResourceAttributes)
    user: str = ""
    groups: list[str] = []
    uid: str = ""
    extra: dict[str, list[str]] = {}


class SubjectAccessReviewStatus(Object):
    """Whether it is allowed."""

    allowed: bool = False


class SubjectAccessReview(Object):
    """May they do this?"""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: SubjectAccessReviewSpec = msgspec.field(default_factory=SubjectAccessReviewSpec)
    status: SubjectAccessReviewStatus = msgspec.field(default_factory=SubjectAccessReviewStatus)
