"""Where an extender is, and how to reach it."""

from __future__ import annotations

import ssl

import msgspec

from gangline.config import Extender
from gangline.extenders.tls import context_of


class Endpoint(msgspec.Struct, frozen=True, eq=False):
    """An extender and how to reach it."""

    extender: Extender
    tls: ssl.SSLContext | bool

    @property
    def url(self) -> str:
        """The urlPrefix, which identifies the extender."""
        return self.extender.url_prefix

    def url_of(self, verb: str) -> str:
        """The URL of a verb."""
        return f"{self.url.rstrip('/')}/{verb}"


def endpoint_of(extender: Extender, path: str) -> Endpoint:
    """The endpoint of an extender; `path` is the extender's path in the configuration.

    Raises ConfigError if its certificates cannot be used.
    """
    return Endpoint(extender, context_of(extender, path))
