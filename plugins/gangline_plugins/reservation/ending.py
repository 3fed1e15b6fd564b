"""How users learn of a reservation: events on the group's pods, and gauges while it lasts.

Its end wakes waiting pods, and its group too, so that the message on the group no longer says that room is kept.
"""

from __future__ import annotations

import logging
from enum import Enum

from gangline import RESERVATION_ENDED, Handle, custom_resources, moments
from gangline_plugins.reservation.room import KeptRoom

log = logging.getLogger(__name__)
_MOST_TOLD = 8
"""At most this many pods of a gang get an event."""
_LABELS = ("namespace", "gang")


class End(Enum):
    """Why a reservation ended: the label of the metric, and the words of the event."""

    SERVED = ("served", "the gang has its place")
    INCOMPLETE = ("incomplete", "the gang is not complete any more")
    LATE = ("late", "the time at which the gang was to start has passed")
    LIMIT = ("limit", "it has lasted as long as the profile allows")
    OUTRANKED = ("outranked", "another gang comes first now")
    UNKNOWN = ("unknown", "nobody knows any more when the gang can start")

    @property
    def label(self) -> str:
        """The metric's label, one word."""
        return self.value[0]

    @property
    def words(self) -> str:
        """The reason as a clause for events."""
        return self.value[1]


class Notices:
    """Writes the events, log lines and metrics of reservations."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._nodes = handle.gauge(
            "gangline_reserved_nodes", "Nodes on which room is kept for a waiting gang.", _LABELS
        )
        self._gpus = handle.gauge("gangline_reserved_gpus", "GPUs that are kept for a waiting gang.", _LABELS)
        self._since = handle.gauge(
            "gangline_reservation_start_time_seconds", "Since when room is kept for a waiting gang.", _LABELS
        )
        self._ended = handle.metric(
            "gangline_reservations_ended",
            "Reservations that ended: served, incomplete, late, limit, outranked, unknown.",
            ("reason",),
        )

    def began(self, kept: KeptRoom) -> None:
        """Report that a reservation began."""
        note = f"Room is kept on {len(kept.rows)} nodes for {kept.name}, which is to start at {moments.shown(kept.at)}"
        log.info("%s", note)
        self._tell(kept, "Normal", "ReservationBegan", note)

    def show(self, kept: KeptRoom) -> None:
        """Update the gauges."""
        labels = (kept.namespace, kept.gang)
        self._nodes.labels(*labels).set(len(kept.rows))
        self._gpus.labels(*labels).set(kept.amount(custom_resources.GPU))
        self._since.labels(*labels).set(kept.since)

    def ended(self, kept: KeptRoom, why: End) -> None:
        """Report that a reservation ended; pods that it kept out may be tried at once."""
        for gauge in (self._nodes, self._gpus, self._since):
            gauge.remove(kept.namespace, kept.gang)
        self._ended.labels(why.label).inc()
        note = f"Room is kept no longer for {kept.name}: {why.words}"
        log.info("%s", note)
        self._tell(kept, "Normal" if why is End.SERVED else "Warning", "ReservationEnded", note)
        self._handle.announce(RESERVATION_ENDED)

    def _tell(self, kept: KeptRoom, kind: str, reason: str, note: str) -> None:
        for pod in kept.pods[:_MOST_TOLD]:
            self._handle.recorder.event(pod, kind, reason, note, action="Reserving")
