"""Creates and checks certificates of Gangline's own CAs, and joins bundles; no I/O, no state."""

from gangline.certificates.bundle import Bundle, issue, merged, server_names, why_renew
from gangline.certificates.signing import Authority, CertificateIdentity

__all__ = ["Authority", "Bundle", "CertificateIdentity", "issue", "merged", "server_names", "why_renew"]
