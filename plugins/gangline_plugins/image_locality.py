"""ImageLocality: prefers nodes that already hold the pod's images."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from gangline import NODE, SKIP, Handle, NodeView, PodClass, PodInfo, ScoreColumn, Status, hookimpl

_MB = 1024 * 1024
LOWER = 23 * _MB
"""Fewer bytes than this score 0."""
UPPER_PER_CONTAINER = 1000 * _MB
"""This many bytes per container score 100."""


class ImageLocality:
    """Scores nodes by the bytes of the pod's images that they hold. An image on few nodes counts less, so that pods are
    not concentrated there.

    Source: kube-scheduler v1.36, image_locality.go.
    """

    name = "ImageLocality"

    def __init__(self, handle: Handle) -> None:
        self._changes = handle.nodes.changes

    @hookimpl
    def skip_key(self, pod: PodInfo) -> Hashable:
        """The last change of a node: until the next one the same images are on nodes."""
        return self._changes.last(NODE)

    @hookimpl
    def pre_score(self, pod: PodInfo, nodes: NodeView) -> Status | None:
        """Skip the score while no node holds any of the images."""
        for name in _images(pod.cls):  # asked in each attempt: a generator would take as long again
            if nodes.image(name)[1]:
                return None
        return SKIP

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """0..100."""
        names = _images(pod.cls)
        total = np.zeros(len(nodes), dtype=np.int64)
        for name in names:
            has, size = nodes.image(name)
            spread = int(np.count_nonzero(has)) / nodes.count
            total += has * int(size * spread)
        upper = UPPER_PER_CONTAINER * (len(pod.spec.init_containers) + len(pod.spec.containers))
        return (100 * (np.clip(total, LOWER, upper) - LOWER) // (upper - LOWER)).astype(np.float64)


def _images(cls: PodClass) -> tuple[str, ...]:
    found: tuple[str, ...] | None = cls.memo.get(ImageLocality)
    if found is None:
        spec = cls.spec
        given = [container.image for container in (*spec.init_containers, *spec.containers)]
        given += [volume.image.reference for volume in spec.volumes if volume.image is not None]
        found = cls.memo[ImageLocality] = tuple(_with_tag(image) for image in given)
    return found


def _with_tag(image: str) -> str:
    return image if image.rfind(":") > image.rfind("/") else image + ":latest"
