"""TopologyAnnotations: follows the topology wishes of workloads in `topology.scheduler/*` annotations."""

from gangline_plugins.topology_annotations.plugin import TopologyAnnotations

__all__ = ["TopologyAnnotations"]
