"""Recovery: a gang that loses members gets new nodes for them, or moves as a whole, before anything is evicted.

`losses` knows which nodes are lost, `policies` what each gang asks for, `planning` finds new places in a transaction.
`plugin` keeps the room and decides when; `carrying_out` does the I/O.
"""

from gangline_plugins.recovery.arguments import RecoveryArgs
from gangline_plugins.recovery.plugin import Recovery

__all__ = ["Recovery", "RecoveryArgs"]
