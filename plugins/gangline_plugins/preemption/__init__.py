"""The parts that all preemption plugins share: the order of precedence, PodDisruptionBudgets, and the eviction of
victims.

Only `evicting` does I/O; the other modules decide.
"""
