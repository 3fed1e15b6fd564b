"""VolumeBinding: gives a pod nodes on which its claims are, or can be, bound, and binds them before the pod."""

from gangline_plugins.volumes.volume_binding.plugin import VolumeBinding, VolumeBindingArgs

__all__ = ["VolumeBinding", "VolumeBindingArgs"]
