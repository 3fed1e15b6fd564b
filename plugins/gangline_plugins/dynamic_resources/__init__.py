"""DynamicResources: the devices of ResourceClaims, as kube-scheduler gives them; README.md says how the parts work."""

from gangline_plugins.dynamic_resources.plugin import DynamicResources, DynamicResourcesArgs

__all__ = ["DynamicResources", "DynamicResourcesArgs"]
