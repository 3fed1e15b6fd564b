"""Numbers of things in messages: `1 pod`, `2 pods`."""


def many(number: int, thing: str) -> str:
    """A number and the name of the thing, which takes an s unless there is one of it."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
