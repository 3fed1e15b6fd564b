"""Which proxy the environment names for an API server, as the official client decides.

As with kubectl, no proxy is used for this machine's own addresses.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit
from urllib.request import getproxies


def proxy_for(server: str) -> str | None:
    """The proxy of $HTTPS_PROXY, $HTTP_PROXY or $ALL_PROXY for a URL, unless $NO_PROXY excludes the URL.

    Raises ValueError for an invalid URL.
    """
    proxies = getproxies()
    proxy = proxies.get(urlsplit(server).scheme) or proxies.get("all")
    return None if not proxy or is_loopback(server) or is_excluded(server, proxies.get("no", "")) else proxy


def is_loopback(server: str) -> bool:
    """Whether a URL leads to this machine. Raises ValueError for an invalid URL."""
    host = (urlsplit(server).hostname or "").lower()
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_excluded(server: str, rules: str) -> bool:
    """Whether one of the rules excludes a URL: rules are separated by commas, each a host, a domain, a network or *."""
    parts = urlsplit(server)
    if not parts.hostname:
        return True
    names = (parts.hostname.lower(), parts.netloc.lower())
    return any(_holds(rule, *names) for each in rules.lower().split(",") if (rule := each.strip()))


def _holds(rule: str, host: str, with_port: str) -> bool:
    if rule == "*" or _is_within(host, rule):
        return True
    domain = rule.lstrip(".")
    return any(name == domain or name.endswith(f".{domain}") for name in (host, with_port))


def _is_within(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
