"""KubeSchedulerConfiguration: loading, checking, expanding to plugins per point, writing back."""

from gangline.config.args import check_no_args, decode_args, plugin_args
from gangline.config.defaults import DEFAULT_PLUGINS, default_plugins
from gangline.config.expanding import Expanded, expand, expand_all, loaded, name_faults, place_of
from gangline.config.loading import fingerprint, load, load_files, load_texts
from gangline.config.schema import (
    POINTS,
    ClientConnection,
    Extender,
    ExtenderTLS,
    LeaderElection,
    ManagedResource,
    PluginConfig,
    PluginRef,
    Plugins,
    PluginSet,
    Profile,
    SchedulerConfiguration,
)
from gangline.config.writing import convert, show
from gangline.durations import Seconds

__all__ = [
    "DEFAULT_PLUGINS",
    "POINTS",
    "ClientConnection",
    "Expanded",
    "Extender",
    "ExtenderTLS",
    "LeaderElection",
    "ManagedResource",
    "PluginConfig",
    "PluginRef",
    "PluginSet",
    "Plugins",
    "Profile",
    "SchedulerConfiguration",
    "Seconds",
    "check_no_args",
    "convert",
    "decode_args",
    "default_plugins",
    "expand",
    "expand_all",
    "fingerprint",
    "load",
    "load_files",
    "load_texts",
    "loaded",
    "name_faults",
    "place_of",
    "plugin_args",
    "show",
]
