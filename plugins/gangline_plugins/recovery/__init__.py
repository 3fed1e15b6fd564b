"""Recovery: a gang that loses members gets new nodes for them, or moves as a whole, before anything is evicted.

`losses` knows which nodes are lost, `down` those in domains that are marked as down, and `device_losses` and
`claim_losses` the pods on devices that are lost. `spares` says which nodes are kept free, `lending` who may use them
meanwhile, and `runtimes` notices when that changes. `wear` and `device_wear` count failures, so that nodes and GPUs are
avoided for a while. `policies` knows what each gang asks for, `planning` finds new places in a transaction. `rounds`
decides when and keeps the room, `carrying_out` does the I/O, `plugin` has the hooks.
"""

from gangline_plugins.recovery.arguments import RecoveryArgs
from gangline_plugins.recovery.plugin import Recovery

__all__ = ["Recovery", "RecoveryArgs"]
