"""The work on a virtual cluster: units of pods, which are created, made complete again, and deleted."""

from __future__ import annotations

from collections.abc import Callable

from gangline.errors import NotFound
from gangline.simulate.server import KNOWN
from gangline_chaos.units import Unit
from gangline_chaos.virtual.site import Site
from gangline_e2e.workloads import Manifest

_KINDS = {(each.api_version, each.kind): each for each in KNOWN}


class Workload:
    """Units by the order in which they came."""

    def __init__(self, site: Site) -> None:
        self.units: list[Unit] = []
        self._site = site
        self._made = 0

    @property
    def count(self) -> int:
        """How many pods there are."""
        return len(self._site.pods())

    def add(self, make: Callable[[str], Unit]) -> None:
        """A unit comes, under a name that no other has."""
        self._made += 1
        unit = make(f"u{self._made}")
        self.units.append(unit)
        for manifest in (*unit.objects, *unit.claims, *unit.pods):
            self._site.server.apply_manifest(manifest)

    def repair(self) -> None:
        """What is missing of the units is made anew, as their controllers do."""
        there = {pod["metadata"]["name"] for pod in self._site.pods()}
        for unit in self.units:
            for manifest in (*unit.objects, *unit.claims):
                self._site.server.apply_manifest(manifest)
            for pod in unit.pods:
                if pod["metadata"]["name"] not in there:
                    self._site.server.apply_manifest(pod)

    def end(self, unit: Unit, at_once: bool = False) -> None:
        """A unit goes, with all that belongs to it."""
        self.units.remove(unit)
        for manifest in (*unit.objects, *unit.claims):
            self._delete(manifest)
        for pod in self._site.pods():
            if pod["metadata"]["name"].startswith(f"{unit.name}-"):
                self._site.delete_pod(pod["metadata"]["name"], at_once)

    def end_all(self) -> None:
        """All units go."""
        for unit in list(self.units):
            self.end(unit)

    def _delete(self, manifest: Manifest) -> None:
        resource = _KINDS[manifest["apiVersion"], manifest["kind"]]
        try:
            self._site.server.delete(resource, manifest["metadata"]["name"], namespace="default")
        except NotFound:
            return
