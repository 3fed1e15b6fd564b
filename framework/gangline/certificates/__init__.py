"""Certificates of an authority of our own: made, judged and put together here; nothing is read, sent or kept."""

from gangline.certificates.bundle import Bundle, issue, merged, server_names, why_renew
from gangline.certificates.signing import Authority, Identity

__all__ = ["Authority", "Bundle", "Identity", "issue", "merged", "server_names", "why_renew"]
