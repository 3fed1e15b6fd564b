"""The address of the API server and the credentials for it."""

from __future__ import annotations

import msgspec

REREAD = 60.0  # seconds after which credentials that lie in a file are read again


class Access(msgspec.Struct, frozen=True):
    """The result of one reading of the credentials.

    ``authorization`` is the whole header. After ``valid_for`` seconds the credentials have to be read again; None means
    that they are read again only if the server refuses them.
    """

    server: str
    source: str = ""
    authorization: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    server_name: str | None = None
    proxy: str | None = None
    valid_for: float | None = None
    context: str = ""
    """The context of the kubeconfig; "" for a service account."""
    namespace: str = ""
    """The namespace of the context, or of the pod; "" if none is set."""
