"""Decisions without I/O: one pod, a group of pods, long searches in stretches."""
