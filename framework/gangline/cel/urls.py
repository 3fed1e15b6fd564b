"""URLs, read as Kubernetes reads them: more strictly than Python's library, and without changing them."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from gangline.cel import costs
from gangline.cel.overloads import Overload
from gangline.cel.values import Map, name_type, strict
from gangline.errors import ExpressionFailed

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PORT = re.compile(r"(:[0-9]*)?")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_HOST = re.compile(r"[^\x00-\x20\x7f\"%/#?@\\^`{|}]*")
_HOST_ESCAPE = re.compile(r"%[89A-Fa-f][0-9A-Fa-f]")
_PLAIN_PATH = re.compile(r"(?:[A-Za-z0-9\-_.~!$&'()*+,;=:@/\[\]]|%[0-9A-Fa-f]{2})*")


class Url:
    """The parts of a URL, and its whole text for comparisons."""

    __slots__ = ("host", "path", "query", "scheme", "text")

    def __init__(self, scheme: str, host: str, path: str, query: str, text: str) -> None:
        self.scheme = scheme
        self.host = host
        self.path = path
        self.query = query
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]


name_type(Url, "kubernetes.URL")
strict(Url)


def _wrong(text: str) -> ExpressionFailed:
    return ExpressionFailed(f"not an absolute URL: {text[:60]!r}")


def _url(text: str) -> Url:
    _read(text, text)
    before, _, fragment = text.partition("#")
    if _BAD_ESCAPE.search(fragment):
        raise _wrong(text)
    return _read(before, text, request=False)


def _read(text: str, whole: str, request: bool = True) -> Url:
    if _CONTROL.search(text) or (not text and request):
        raise _wrong(whole)
    if text == "*":
        return Url("", "", "*", "", whole)
    scheme, rest = "", text
    match = _SCHEME.match(text)
    if match is not None:
        scheme, rest = match[1].lower(), text[match.end() :]
    elif text[:1] == ":":
        raise _wrong(whole)
    rest, _, query = rest.partition("?")
    host = ""
    if not rest.startswith("/"):
        if scheme and rest:
            return Url(scheme, "", "", query, whole)
        if request:
            raise _wrong(whole)
        if ":" in rest.partition("/")[0]:
            raise _wrong(whole)
    if rest.startswith("//") and (scheme or not request) and not rest.startswith("///"):
        authority, slash, path = rest[2:].partition("/")
        host, rest = _host(authority, whole), slash + path
    elif rest.startswith("///") and scheme:
        rest = rest[2:]
    if _BAD_ESCAPE.search(rest):
        raise _wrong(whole)
    return Url(scheme, host, _escaped(rest), query, whole)


def _host(authority: str, whole: str) -> str:
    user, at, host = authority.rpartition("@")
    if at and (not _USER.fullmatch(user) or _BAD_ESCAPE.search(user)):
        raise _wrong(whole)
    if host.startswith("["):
        inner, bracket, port = host.rpartition("]")
        if not bracket or not _PORT.fullmatch(port):
            raise _wrong(whole)
        zone = inner.find("%25")
        plain = inner[1:] if zone < 0 else inner[1:zone]
        if not _HOST.fullmatch(plain.replace("[", "")):
            raise _wrong(whole)
        if zone >= 0:
            inner = inner[:zone] + unquote_to_bytes(inner[zone:]).decode("utf-8", "replace")
        return f"{inner}]{port}"
    colon = host.rfind(":")
    if colon >= 0 and not _PORT.fullmatch(host[colon:]):
        raise _wrong(whole)
    bare = _HOST_ESCAPE.sub("", host)
    if not _HOST.fullmatch(bare):
        raise _wrong(whole)
    return unquote_to_bytes(host).decode("utf-8", "replace")


def _escaped(path: str) -> str:
    if _PLAIN_PATH.fullmatch(path):
        return path
    return quote(unquote_to_bytes(path), safe="/$&+,:;=@~")


def _host_name(url: Url) -> str:
    host = url.host
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if (colon and port.isdigit()) or (colon and not port) else host


def _port(url: Url) -> str:
    tail = url.host.rpartition("]")[2] if url.host.startswith("[") else url.host
    return tail.rpartition(":")[2] if ":" in tail else ""


def _query(url: Url) -> Map:
    found: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        if not pair or ";" in pair:
            continue
        key, _, value = pair.partition("=")
        if _BAD_ESCAPE.search(key) or _BAD_ESCAPE.search(value):
            continue
        found.setdefault(_unescaped(key), []).append(_unescaped(value))
    return Map(dict(found))


def _unescaped(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "surrogateescape")


def is_url(text: str) -> bool:
    """Whether the text is an absolute URL or a path."""
    try:
        _read(text, text)
    except ExpressionFailed:
        return False
    return True


OVERLOADS = [
    Overload("string_to_url", "url(string) URL", _url, costs.traverses()),
    Overload("is_url_string", "isURL(string) bool", is_url),
    Overload("url_get_scheme", "URL|getScheme() string", lambda url: url.scheme),
    Overload("url_get_host", "URL|getHost() string", lambda url: url.host),
    Overload("url_get_hostname", "URL|getHostname() string", _host_name),
    Overload("url_get_port", "URL|getPort() string", _port),
    Overload("url_get_escaped_path", "URL|getEscapedPath() string", lambda url: url.path),
    Overload("url_get_query", "URL|getQuery() map<string,list<string>>", _query),
]
