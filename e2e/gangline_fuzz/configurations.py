"""KubeSchedulerConfigurations: each loads and makes profiles, or there is a ConfigError that says why not."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
import yaml
from hypothesis import strategies as st

from gangline import config
from gangline.config.schema import KubeSchedulerConfiguration
from gangline.errors import ConfigError, PluginError
from gangline.loop.scheduler import Options, Scheduler
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, run
from gangline_fuzz import from_types, texts
from gangline_fuzz.budget import measured
from gangline_fuzz.cluster import catalog
from gangline_fuzz.inputs import Configuration
from gangline_fuzz.objects import damage
from gangline_fuzz.oracle import Failed, Found, Kind
from gangline_profiles import names, read

_BOMB = "a: &a [x]\n" + "".join(
    f"{one}: &{one} [{','.join([f'*{before}'] * 9)}]\n" for before, one in pairwise("abcdefgh")
)
ODD = (
    "&a [*a]", "{a: &a {b: *a}}", "[" * 2000, "{a: " * 500, "9" * 5000, "0x" + "f" * 5000, "2026-13-45", "!!binary x",
    "<<: 1", "1e999", ".nan", ".inf", "-.inf", "0o8", "1:99:99", "!!python/object:os.system x", "--- a\n--- b", "\t",
    "? [a]\n: b", f"1\n{_BOMB}",
)  # fmt: skip
"""Texts that YAML has its own ideas about."""


@cache
def _profiles() -> tuple[Any, ...]:
    return tuple(yaml.safe_load(read(name)) for name in names())


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """A profile that comes with Gangline: as text with an odd value, or with some fields made anew; perhaps damaged."""
    if draw(st.integers(0, 3)) == 0:
        text = f"{read(draw(st.sampled_from(sorted(names()))))}\nodd: {draw(st.sampled_from(ODD))}\n"
    else:
        data = draw(st.sampled_from(_profiles()))
        for _ in range(draw(st.integers(0, 3))):
            data = draw(from_types.edited(KubeSchedulerConfiguration, data))
        data = draw(_with_args(data)) if isinstance(data, dict) else data
        text = texts.written(data)  # JSON is YAML
    if (hurt := draw(damage)) is not None:
        at, gone, new = hurt
        text = text[: at % (len(text) + 1)] + new + text[at % (len(text) + 1) + gone :]
    return Configuration(text)


@st.composite
def _with_args(draw: st.DrawFn, data: dict[str, Any]) -> Any:
    """The configuration with odd arguments for one of the installed plugins."""
    types = {name: kind for name in sorted(catalog().names) if (kind := _args_type(name)) is not None}
    name = draw(st.sampled_from(sorted(types)))
    args = draw(from_types.strategy_for(types[name]))
    profile = {"schedulerName": "odd", "pluginConfig": [{"name": name, "args": args}]}
    return {**data, "profiles": [profile]} if draw(st.booleans()) else data


def _args_type(name: str) -> Any:
    kind = getattr(catalog().load(name), "args_type", None)
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def play(what: Configuration) -> None:
    """Raises Failed, or whatever loading raises that it should not."""
    with measured() as spent:
        try:
            loaded = config.load(what.text.encode("utf-8", "surrogateescape"), "config.yaml")
            run(_build(loaded))
        except (ConfigError, PluginError):
            pass
    if spent.seconds > 5.0 or spent.mib > 100.0:
        said = f"{spent.seconds:.1f} s and {spent.mib:.0f} MiB"
        raise Failed(Found(Kind.CPU, 0, f"a configuration of {len(what.text)} characters took {said}", "config"))


async def _build(loaded: config.SchedulerConfiguration) -> None:
    clock = VirtualClock()
    Scheduler(loaded, SimulatedClient(InMemoryServer(clock)), clock, catalog(), Options(seed=0))
