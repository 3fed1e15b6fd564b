"""DeviceLease: devices are locked with Leases, so that no two schedulers give one to two pods."""
