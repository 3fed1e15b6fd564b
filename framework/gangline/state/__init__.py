"""The cluster in columns: nodes, pods, labels, topology, and transactions on them."""
