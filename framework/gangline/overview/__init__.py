"""The use of a cluster's GPUs, devices and domains, counted from the columns."""
