"""The node agent: reports a node's GPUs."""
