"""Chaos in virtual time: schedulers on an in-memory API server, with faults between any two writes, judged live."""
