"""Definitions of other projects, which the API server gets as those publish them; see the files in foreign/."""

from __future__ import annotations

from pathlib import Path

import yaml

from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.workloads import Manifest

_FOLDER = Path(__file__).parent / "foreign"


def definition(plural: str) -> Manifest:
    """The CustomResourceDefinition of a kind."""
    found: Manifest = yaml.safe_load((_FOLDER / f"{plural}.yaml").read_text())
    return found


async def install_foreign_kind(api: Api, plural: str) -> None:
    """Create the definition of a kind, and wait until its objects are served."""
    made = definition(plural)
    await api.create(made)
    group, version = made["spec"]["group"], made["spec"]["versions"][0]["name"]

    async def is_served() -> bool:
        try:
            await api.list(f"/apis/{group}/{version}/{plural}")
        except Refused as error:
            if error.status not in (404, 429):
                raise
            return False
        return True

    await api.until(is_served, f"{plural}.{group} is served")
