"""Devices of dynamic resource allocation: what ResourceSlices offer, what ResourceClaims ask for, and who gets what.

The way from objects to an allocation:

1. `pools` sorts slices into pools, as each node sees them. The newest generation of a pool counts. A pool that lacks
   slices is incomplete, and a pool whose slices contradict each other is invalid; neither kind gives devices.
2. `reading` refuses slices that cannot be used. `table` has a row for each device of the usable pools. `properties`
   makes columns of what devices say when a question first needs them: attributes, taints, capacities. `selecting`
   evaluates an expression once for each distinct tuple of what the expression reads, so 40,000 devices of one driver
   cost one evaluation of ``device.driver == "..."``. Columns are kept (`rows`): only rows that change are read again.
3. `usage` has what allocated claims have taken, and `standing` puts it beside the table: free devices, counters left.
4. `asking` reads the claims of a pod and checks them. `candidates` makes the columns of each request: which devices are
   meant, which of them may be given, and for which a selector fails.
5. `counting` answers for all nodes at once, by `bincount`, where counting is exact, for each of the `ways` to choose
   alternatives; `dealing` says whether devices suffice for requests whose candidates overlap, `counters` for which
   devices enough is left of the counters that they consume, and `locating` on which nodes they are. For the other
   nodes, and for the node that is chosen, `cutting` cuts out a `problem`: devices become bits, and equal nodes become
   equal problems. `likeness` finds equal nodes before that, in `matrices`, so that one is asked for all; `solving`
   keeps the answers. For claims that pods on several nodes share, `reaching` tells which nodes may use a device
   together.
6. `search` solves a problem: the first solution of kube-scheduler's depth-first search, device by device. `holding` is
   the state of the search. `outlook` proves by counting that a branch has no solution, so that the search does not
   enter the branch. A search ends after a limited number of steps, and its answer says that it gave up.
7. In the order `best`, `losses` says how much later pods lose with each device: `sharing` for the parts of a counter
   set, `links` for groups of linked devices. `best` asks `search` for several solutions and takes the cheapest by the
   `stakes` of the node; `weighing` compares nodes. `units` counts how much of the GPUs of each node is free.
8. `results` writes the allocation: devices, configuration of classes and claim, node selector.

Nothing here does I/O. `allocator` puts the parts together for one question, `questions` keeps the answers to a question
for all nodes, `kept` passes changes of objects on to the table and the usage, and `live` has the questions, each with a
deadline. While slices arrive, `preparing` makes what the first questions would have to make.
"""

from gangline.dra.allocator import Allocator, NodeVerdict, PodAllocator
from gangline.dra.selecting import Compile, SelectorProgram, Selectors, compile_selector
from gangline.dra.standing import Standing
from gangline.dra.table import SliceTable
from gangline.dra.usage import Usage

__all__ = [
    "Allocator",
    "Compile",
    "NodeVerdict",
    "PodAllocator",
    "SelectorProgram",
    "Selectors",
    "SliceTable",
    "Standing",
    "Usage",
    "compile_selector",
]
