"""LeafSpine: gangs on one leaf, on a complete leaf, or on adjacent leaves, by how many nodes they need."""

from gangline_plugins.leaf_spine.plugin import LeafSpine

__all__ = ["LeafSpine"]
