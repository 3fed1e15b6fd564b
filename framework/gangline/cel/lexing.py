"""Text to tokens, and literals to values."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from gangline.cel.values import LEAST_INT, MOST_INT, MOST_UINT, Uint
from gangline.errors import InvalidExpression

_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7][0-7])"""
_STRING = "|".join(
    [
        r'[rR]"""(?s:.*?)"""',
        r"[rR]'''(?s:.*?)'''",
        rf'"""(?:{_ESCAPE}|[^\\])*?"""',
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        r'[rR]"[^"\n\r]*"',
        r"[rR]'[^'\n\r]*'",
        rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    ]
)
_TOKEN = re.compile(
    "|".join(
        [
            r"(?P<space>[\t \r\n\f]+|//[^\n]*)",
            rf"(?P<bytes>[bB](?:{_STRING}))",
            rf"(?P<string>{_STRING})",
            r"(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)",
            r"(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])",
            r"(?P<int>0x[0-9a-fA-F]+|[0-9]+)",
            r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)",
            r"(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,(){}\[\]])",
        ]
    )
)
_ESCAPES = re.compile(_ESCAPE)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WORDS = frozenset({"in", "true", "false", "null"})


class Token(NamedTuple):
    """`kind` is string, bytes, float, int, uint or name; for signs, keywords and the end it is the text itself."""

    kind: str
    text: str
    at: int


def tokens(text: str) -> list[Token]:
    """The tokens of an expression, the last one of the kind `end`. Raises InvalidExpression."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidExpression(f"character {at + 1}: no token of the language begins here")
        kind, word = str(match.lastgroup), match.group()
        if kind == "sign" or (kind == "name" and word in _WORDS):
            kind = word
        if kind != "space":
            found.append(Token(kind, word, at))
        at = match.end()
    found.append(Token("end", "", at))
    return found


def number(token: Token, negative: bool) -> Any:
    """The value of a number. Raises InvalidExpression if it does not fit into 64 bits."""
    if token.kind == "float":
        value = float(token.text)
        if value in (float("inf"), float("-inf")):
            raise InvalidExpression(f"character {token.at + 1}: the double is out of range")
        return -value if negative else value
    digits = token.text.rstrip("uU")
    if len(digits) > 40:
        raise InvalidExpression(f"character {token.at + 1}: the integer is out of range")
    whole = int(digits, 16 if digits.startswith("0x") else 10) * (-1 if negative else 1)
    least, most = (0, MOST_UINT) if token.kind == "uint" else (LEAST_INT, MOST_INT)
    if not least <= whole <= most:
        raise InvalidExpression(f"character {token.at + 1}: the integer is out of range")
    return Uint(whole) if token.kind == "uint" else whole


def text_of(token: Token) -> str | bytes:
    """The value of a string or of bytes. Raises InvalidExpression for a wrong code point."""
    body = token.text.replace("\r\n", "\n").replace("\r", "\n")
    is_bytes = token.kind == "bytes"
    body = body[1:] if is_bytes else body
    raw = body[0] in "rR"
    body = body[1:] if raw else body
    quotes = 3 if len(body) >= 6 and body[:3] in ('"""', "'''") else 1
    body = body[quotes:-quotes]
    if raw or "\\" not in body:
        return body.encode() if is_bytes else body
    try:
        return _unescaped_bytes(body) if is_bytes else _ESCAPES.sub(lambda match: _unescaped(match.group()), body)
    except (ValueError, OverflowError):
        raise InvalidExpression(f"character {token.at + 1}: an escape stands for no code point") from None


def _unescaped(escape: str) -> str:
    letter = escape[1]
    if letter in "xXuU":
        return _character(int(escape[2:], 16))
    if letter in "0123":
        return chr(int(escape[1:], 8))
    return _SIMPLE.get(letter, letter)


def _character(code: int) -> str:
    if 0xD800 <= code < 0xE000:
        raise ValueError(code)
    return chr(code)


def _unescaped_bytes(body: str) -> bytes:
    parts: list[bytes] = []
    at = 0
    for match in _ESCAPES.finditer(body):
        parts.append(body[at : match.start()].encode())
        escape = match.group()
        if escape[1] in "uU":
            raise ValueError(escape)
        one = _unescaped(escape)
        parts.append(bytes([ord(one)]))
        at = match.end()
    parts.append(body[at:].encode())
    return b"".join(parts)
