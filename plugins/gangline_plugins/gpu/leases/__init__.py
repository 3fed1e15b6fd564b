"""DeviceLease: locks devices with Lease objects, so that two schedulers never give the same device to two pods."""
