"""The plugins that are enabled unless a profile disables them: those of kube-scheduler v1.36, in its order."""

from __future__ import annotations

from collections.abc import Collection

from gangline.config.schema import PluginRef

# A weight stands where the plugin scores. The last three are alpha upstream and off there.
DEFAULT_PLUGINS: tuple[PluginRef, ...] = (
    PluginRef("SchedulingGates"),
    PluginRef("PrioritySort"),
    PluginRef("NodeUnschedulable"),
    PluginRef("NodeName"),
    PluginRef("TaintToleration", 3),
    PluginRef("NodeAffinity", 2),
    PluginRef("NodePorts"),
    PluginRef("NodeResourcesFit", 1),
    PluginRef("VolumeRestrictions"),
    PluginRef("NodeVolumeLimits"),
    PluginRef("VolumeBinding"),
    PluginRef("VolumeZone"),
    PluginRef("PodTopologySpread", 2),
    PluginRef("InterPodAffinity", 2),
    PluginRef("DynamicResources", 2),
    PluginRef("DefaultPreemption"),
    PluginRef("NodeResourcesBalancedAllocation", 1),
    PluginRef("ImageLocality", 1),
    PluginRef("DefaultBinder"),
    PluginRef("NodeDeclaredFeatures"),
    PluginRef("GangScheduling"),
    PluginRef("TopologyPlacementGenerator"),
    PluginRef("PodGroupPodsCount", 1),
)


def default_plugins(available: Collection[str]) -> tuple[PluginRef, ...]:
    """The default plugins that are installed, in order.

    The last three plugins do not come with Gangline: each is on if an installed package brings it.
    """
    return tuple(plugin for plugin in DEFAULT_PLUGINS if plugin.name in available)
