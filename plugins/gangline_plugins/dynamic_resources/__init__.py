"""DynamicResources: the devices of ResourceClaims, as kube-scheduler gives them; README.md says how the parts work."""

from gangline_plugins.dynamic_resources.arguments import DynamicResourcesArgs
from gangline_plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources", "DynamicResourcesArgs"]
