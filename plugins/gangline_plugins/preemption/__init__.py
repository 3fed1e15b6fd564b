"""What every preemption shares: who comes before whom, disruption budgets, and the eviction of victims.

Everything but `evicting` decides and does no I/O.
"""
