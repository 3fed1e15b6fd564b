"""TopologyAnnotations: what workloads say of topology in `topology.scheduler/*` annotations."""

from gangline_plugins.topology_annotations.plugin import TopologyAnnotations

__all__ = ["TopologyAnnotations"]
