"""Gangline's own plugins, found through entry points like anyone else's."""
