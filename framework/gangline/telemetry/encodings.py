"""Which content encodings a client accepts, by the header Accept-Encoding of its request (RFC 9110, 12.5.3)."""

from __future__ import annotations


def gzip_accepted(accept_encoding: str) -> bool:
    """Whether a client takes gzip; one that names it, or all codings, with the weight 0 does not."""
    weights = dict(_weighted(each) for each in reversed(accept_encoding.lower().split(",")))  # the first one counts
    return weights.get("gzip", weights.get("*", 0.0)) > 0.0


def _weighted(element: str) -> tuple[str, float]:
    """A coding and its weight: 1 if none is given, 0 if the given text is no weight."""
    coding, *parameters = (part.strip() for part in element.split(";"))
    for name, _, value in (each.partition("=") for each in parameters):
        if name.strip() == "q":
            try:
                weight = float(value)
            except ValueError:
                return coding, 0.0
            return coding, weight if 0.0 <= weight <= 1.0 else 0.0
    return coding, 1.0
