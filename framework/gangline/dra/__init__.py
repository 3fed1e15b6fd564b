"""Devices of dynamic resource allocation: what ResourceSlices offer, what ResourceClaims ask for, and who gets what."""
