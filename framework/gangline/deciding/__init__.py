"""Decisions without I/O: one pod, a whole group, and long searches in stretches."""
