"""The profiles that come with Gangline: configuration files as package data."""

from importlib.resources import files

_SUFFIX = ".yaml"
_ALIASES = {"gangline": "gpu-scheduler"}
"""Further names of a profile: each gives the same profile with this schedulerName."""


def names() -> list[str]:
    """The names of the profiles, sorted: what ``read`` takes."""
    found = (entry.name for entry in files(__name__).iterdir())
    return sorted([*_ALIASES, *(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX))])


def read(name: str) -> str:
    """The KubeSchedulerConfiguration called ``name``, as YAML. KeyError if there is none."""
    if name not in names():
        raise KeyError(name)
    if name in _ALIASES:
        other = _ALIASES[name]
        return read(other).replace(f"schedulerName: {other}\n", f"schedulerName: {name}\n")
    return files(__name__).joinpath(name + _SUFFIX).read_text(encoding="utf-8")
