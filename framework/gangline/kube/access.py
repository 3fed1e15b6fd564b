"""The address of the API server and the credentials for it."""

from __future__ import annotations

from dataclasses import dataclass

REREAD = 60.0  # seconds after which credentials that lie in a file are read again


@dataclass(frozen=True, slots=True)
class Access:
    """The result of one reading of the credentials.

    ``authorization`` is the whole header. ``valid_for`` is after how many seconds to read again;
    None means that only a refusal by the server is a reason to.
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
