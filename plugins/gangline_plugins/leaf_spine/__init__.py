"""LeafSpine: places a gang on one leaf, on a complete leaf, or on adjacent leaves, by the number of nodes that it
needs.
"""

from gangline_plugins.leaf_spine.plugin import LeafSpine

__all__ = ["LeafSpine"]
