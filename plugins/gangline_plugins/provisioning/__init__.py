"""Provisioning: asks cluster-autoscaler for the room of whole gangs, by one ProvisioningRequest for each.

`asking` makes the objects, `conditions` reads what has become of a request, `planning` decides what is due for a gang.
`plugin` remembers the gangs and decides when; `carrying_out` does the I/O.
"""

from gangline_plugins.provisioning.arguments import ProvisioningArgs
from gangline_plugins.provisioning.plugin import Provisioning

__all__ = ["Provisioning", "ProvisioningArgs"]
