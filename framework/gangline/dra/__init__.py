"""Devices of dynamic resource allocation: what ResourceSlices offer, what ResourceClaims ask for, and who gets what.

The way from objects to an allocation:

1. `pools` sorts slices into pools, as each node sees them: the newest generation counts; a pool that lacks slices is
   incomplete, one whose slices contradict each other is invalid, and neither gives devices.
2. `reading` refuses slices that cannot be used. `table` has a row for each device of the usable pools. `properties`
   makes columns of what devices say when a question first needs them: attributes, taints, capacities. `selecting`
   evaluates an expression once for each distinct tuple of what the expression reads, so 40,000 devices of one driver
   cost one evaluation of ``device.driver == "..."``. Columns are kept (`rows`): only rows that change are read again.
3. `usage` has what allocated claims have taken, and `standing` puts it beside the table: free devices, counters left.
4. `asking` reads the claims of a pod and checks them. `candidates` makes the columns of each request: which devices are
   meant, which of them may be given, and for which a selector fails.
5. `counting` answers for all nodes at once, by `bincount`, where counting is exact. For the other nodes, and for the
   node that is chosen, `cutting` cuts out a `problem`: devices become bits, and equal nodes become equal problems.
   `likeness` finds equal nodes before that, so that one of them is asked for all; `solving` keeps the answers. For
   claims that pods on several nodes share, `reaching` tells which nodes may use a device together.
6. `search` solves a problem: the first solution of kube-scheduler's depth-first search, device by device. `holding` is
   the state of the search. `outlook` sees early that there is no way on, by counting, so that the search does not try
   the same in vain again and again. A bound on its steps ends each search; the answer says so.
7. In the order `best`, `losses` has what others lose with each device: `sharing` knows it for the parts of a counter
   set, `links` for groups of linked devices. `best` asks `search` for several solutions and takes the cheapest by the
   `stakes` of the node; `weighing` compares nodes. `units` counts how much of the GPUs of each node is free.
8. `results` writes the allocation: devices, configuration of classes and claim, node selector.

Nothing here does I/O. `allocator` puts the parts together for one question, `questions` keeps its answers for all
nodes, and `live` tells table and usage of changes.
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
