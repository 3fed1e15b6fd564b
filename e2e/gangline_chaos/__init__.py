"""Chaos: faults of every kind on a real control plane, judged afterwards by the history of its etcd.

`recorder` writes down every revision of etcd. `judge` reads such a history, and knows nothing of Gangline. `faults`,
`network` and `schedulers` break things, `workload` gives the scheduler its work, and `running` puts them together.
"""
