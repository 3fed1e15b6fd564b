"""The plugins for volumes: binding, zones, limits of CSI drivers, and disks that only one node may use."""
