"""The way from a watch event to a binding, and what becomes of each decision."""
