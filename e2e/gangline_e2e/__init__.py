"""A real control plane on loopback, for end-to-end tests."""
