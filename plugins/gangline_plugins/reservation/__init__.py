"""Reservation: room is kept for the group that waits longest, and smaller work fills the time until then."""

from gangline_plugins.reservation.arguments import ReservationArgs
from gangline_plugins.reservation.plugin import Reservation

__all__ = ["Reservation", "ReservationArgs"]
