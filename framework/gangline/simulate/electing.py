"""An election among the schedulers of a simulated cluster, as `gangline run` holds it with `leaderElection`.

election = Election(client, cluster.clock, "one")
options = Options(identity="one", term=lambda: election.tenure.term)
scheduler = make_scheduler(PROFILE, client, cluster.clock, options=options)
async with running(election.lead(scheduler)):
    ...
"""

from __future__ import annotations

import random

from gangline.api.plugin import Clock
from gangline.config import LeaderElection
from gangline.errors import LeadershipLost
from gangline.loop.scheduler import Scheduler
from gangline.process.leading import Elector
from gangline.process.tenure import Tenure
from gangline.simulate.client import SimulatedClient

__all__ = ["Election", "Tenure"]


class Election:
    """One candidate for the Lease NAMESPACE/NAME."""

    def __init__(
        self,
        client: SimulatedClient,
        clock: Clock,
        identity: str,
        lease: str = "kube-system/gangline",
        tenure: Tenure | None = None,
    ) -> None:
        self.tenure = tenure or Tenure(clock)
        """Says until when the candidate leads, if it leads."""
        namespace, _, name = lease.partition("/")
        settings = LeaderElection(resource_namespace=namespace, resource_name=name)
        self._elector = Elector(client, clock, settings, identity, random.Random(1), tenure=self.tenure)

    async def lead(self, scheduler: Scheduler) -> None:
        """Run a scheduler that decides while it leads; ends when it loses its Lease, as the process would."""
        try:
            await scheduler.run(self._elector.run)
        except* LeadershipLost:
            pass  # the process has ended
