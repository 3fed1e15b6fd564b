"""Gangline beside kube-scheduler: the workloads, their measurement, and the evaluation of the figures."""
