"""Says what the image is made of (CycloneDX) and how it was made (in-toto, SLSA provenance v1); pure.

Rules
- The statements contain known facts alone: the files of each package that the lock permits, and the base image's
  digest.
- The same build says the same: time and identities come in as arguments, and lists are sorted.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from locks import Pin

BUILD_TYPE = "https://gangline.dev/make-image/v1"
BUILDER = "https://gangline.dev/builders/make-image"
_BASE = re.compile(r"([a-z0-9][a-z0-9._:/-]*)@sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Base:
    """The base image; ``name`` may have a tag, which is for people alone."""

    name: str
    digest: str

    def __str__(self) -> str:
        return f"{self.name}@sha256:{self.digest}"


@dataclass(frozen=True, slots=True)
class Build:
    """One build: what went in, when it was, and the digest of the image that came of it."""

    tag: str
    version: str
    commit: str
    base: Base
    image: str
    started: datetime
    finished: datetime
    locks: Mapping[str, tuple[str, Sequence[Pin]]]
    """For each lock file, by path: the SHA-256 of the file, and the packages that it pins."""


def parse_base(text: str) -> Base:
    """An image with its digest. ValueError for one without: a tag may be another image tomorrow."""
    found = _BASE.fullmatch(text)
    if not found:
        raise ValueError(f"the base image has to be IMAGE@sha256:DIGEST with 64 hexadecimal digits, got {text!r}")
    return Base(found[1], found[2])


def bill_of_materials(version: str, base: Base, pins: Sequence[Pin], made: datetime) -> str:
    """The SBOM of the image as CycloneDX 1.6 in JSON."""
    product = Component(
        type=ComponentType.CONTAINER,
        name="gangline",
        version=version,
        bom_ref=f"gangline@{version}",
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
    )
    image = Component(
        type=ComponentType.CONTAINER,
        name=base.name,
        bom_ref=str(base),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=base.digest)],
    )
    packages = [_package(pin) for pin in sorted(pins, key=lambda pin: pin.name)]
    said = json.dumps([version, str(base), [pin.purl for pin in pins], made.isoformat()])
    bom = Bom(
        components=[image, *packages],
        metadata=BomMetaData(component=product, timestamp=made),
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, said),
    )
    bom.register_dependency(product, [image, *packages])
    return JsonV1Dot6(bom).output_as_string(indent=2)


def provenance(build: Build, sbom: str, sbom_digest: str) -> dict[str, Any]:
    """The in-toto statement of a build; ``sbom`` is the name of its bill of materials."""
    source = {"name": "source", "digest": {"gitCommit": build.commit}}
    base = {"uri": f"docker://{build.base.name}", "digest": {"sha256": build.base.digest}}
    locks = [{"uri": f"file:{path}", "digest": {"sha256": digest}} for path, (digest, _) in sorted(build.locks.items())]
    pins = sorted({pin for _, found in build.locks.values() for pin in found}, key=lambda pin: pin.purl)
    packages = [{"uri": pin.purl, "annotations": {"sha256AnyOf": list(pin.hashes)}} for pin in pins]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": build.tag, "digest": {"sha256": build.image}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"base": str(build.base), "version": build.version, "commit": build.commit},
                "resolvedDependencies": [source, base, *locks, *packages],
            },
            "runDetails": {
                "builder": {"id": BUILDER},
                "metadata": {"startedOn": build.started.isoformat(), "finishedOn": build.finished.isoformat()},
                "byproducts": [{"name": sbom, "digest": {"sha256": sbom_digest}}],
            },
        },
    }


def _package(pin: Pin) -> Component:
    page = XsUri(f"https://pypi.org/project/{pin.name}/{pin.version}/")
    files = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in pin.hashes]
    return Component(
        name=pin.name,
        version=pin.version,
        bom_ref=pin.purl,
        purl=PackageURL.from_string(pin.purl),
        external_references=[ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=page, hashes=files)],
    )
