"""Reservation: keeps nodes for the group that is first in line, and lets smaller pods run there if they end in time."""

from gangline_plugins.reservation.arguments import ReservationArgs
from gangline_plugins.reservation.plugin import Reservation

__all__ = ["Reservation", "ReservationArgs"]
