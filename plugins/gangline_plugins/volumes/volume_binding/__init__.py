"""VolumeBinding: finds nodes on which a pod's claims are or can be bound, and has them bound before the pod."""

from gangline_plugins.volumes.volume_binding.plugin import VolumeBinding, VolumeBindingArgs

__all__ = ["VolumeBinding", "VolumeBindingArgs"]
