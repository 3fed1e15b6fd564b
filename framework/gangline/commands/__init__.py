"""The commands of `gangline`, one module each."""
