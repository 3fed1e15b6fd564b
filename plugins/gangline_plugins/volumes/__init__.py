"""The plugins that look at volumes: binding, zones, limits of drivers, disks that one node may use."""
