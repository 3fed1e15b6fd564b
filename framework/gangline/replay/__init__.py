"""Replays traces of clusters in virtual time: pods arrive, the real scheduler places them, and they run and end.

Nothing here talks to an API server: the decisions, the queue and the bindings are those of `loop`, and a few lines of
`playing` stand for the API server and the kubelets. So a replay is much quicker than a simulation of manifests, and has
no workload controllers, no claims of drivers and no failing nodes.
"""
