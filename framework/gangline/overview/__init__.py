"""What the cluster is used for, counted from the columns."""
