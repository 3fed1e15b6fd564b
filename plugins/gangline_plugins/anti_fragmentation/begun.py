"""Prefers begun domains, those with a GPU in use, for single pods, so that complete domains stay complete.

Rules:
- A narrow level counts before a wider one: a begun leaf comes first, then a leaf of a begun spine.
- Among begun domains the fullest comes first if nodes are otherwise equal.
- A node in no domain of the narrowest level is a domain of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gangline import Domains, Int64Column, NodeView, Rows, Topology
from gangline_plugins.anti_fragmentation.capacity import all_devices, all_of_row
from gangline_plugins.anti_fragmentation.gradient import Gradient, Values
from gangline_plugins.gpu.columns import Columns

_FULLNESS = 1e-3
"""The weight of fullness, in points of the score: it decides only between nodes that are otherwise equal."""


class Begun:
    """The use of each domain, kept in step with a gradient."""

    def __init__(self, gradient: Gradient, columns: Columns, topology: Topology) -> None:
        self._gradient = gradient
        self._columns = columns
        self._topology = topology
        self._version = -1
        self._levels: Sequence[Domains] = ()
        self._used: Int64Column = np.zeros(0, dtype=np.int64)
        """Thousandths of GPUs in use on each node."""
        self._all: Int64Column = np.zeros(0, dtype=np.int64)
        """Thousandths of all GPUs of each node."""
        self._in_use: list[Int64Column] = []
        """Thousandths in use of each domain of each level, widest first."""
        self._devices: Int64Column = np.zeros(0, dtype=np.int64)
        """Thousandths of all GPUs of each domain of the narrowest level, at least 1."""
        self._above: list[Rows] = []
        """For each level, widest first: the domain that contains each domain of the narrowest level, or the number of
        domains if none does.
        """
        self._order: Rows = np.zeros(0, dtype=np.intp)
        """Nodes domain by domain of the narrowest level, those in none first."""
        self._starts: Rows = np.zeros(0, dtype=np.intp)
        """The place in `_order` at which the nodes of each domain begin; the first entry is for the nodes in none."""
        self._of_domain: Values = np.zeros(0)
        self._steps: Values = np.zeros(0)
        """The amount that is added to the score of each node."""

    def raised(self, scores: Values, nodes: NodeView) -> Values:
        """Scores of 0 to 100 in which nodes of begun domains are above all others, and nodes of equally begun domains
        keep their order.

        `nodes` are all nodes, and the gradient is up to date.
        """
        self._refresh(nodes)
        if not self._levels:
            return scores
        raised: Values = scores + self._steps
        raised /= len(self._levels) + 1.0 + _FULLNESS / 100.0
        return raised

    def _refresh(self, nodes: NodeView) -> None:
        levels = self._topology.switches()  # the same list as long as no domain has changed
        if levels is not self._levels or len(self._used) != len(nodes):
            self._levels = levels
            self._start(nodes)
        elif self._levels and self._gradient.version != self._version:
            self._follow(nodes, self._gradient.since(self._version))
        self._version = self._gradient.version

    def _start(self, nodes: NodeView) -> None:
        self._all = all_devices(nodes, self._columns, self._gradient.offered)
        self._used = np.where(self._all > 0, self._all - self._gradient.free.sum(axis=1), 0)
        self._in_use = [level.sums(self._used) for level in self._levels]
        if not self._levels:
            return
        narrowest = self._levels[-1]
        self._devices = np.maximum(narrowest.sums(self._all), 1)
        self._order = np.argsort(narrowest.ids, kind="stable")
        self._starts = np.searchsorted(narrowest.ids[self._order], np.arange(-1, len(narrowest) + 1))
        ancestors = ((level, narrowest.ancestors(level)) for level in self._levels)
        self._above = [np.where(above >= 0, above, len(level)).astype(np.intp) for level, above in ancestors]
        self._of_domain = self._worked_out()
        self._steps = np.append(self._of_domain, 0.0)[narrowest.ids]
        self._judge_alone()

    def _follow(self, nodes: NodeView, rows: Rows) -> None:
        """Update the rows that have changed, usually one node."""
        if len(rows) == 1 and self._follow_one(nodes.at(rows)):
            return
        devices = all_devices(nodes.at(rows), self._columns, self._gradient.offered)
        if (devices != self._all[rows]).any():
            self._start(nodes)
            return
        used = np.where(devices > 0, devices - self._gradient.free[rows].sum(axis=1), 0)
        change, self._used[rows] = used - self._used[rows], used
        for level, in_use in zip(self._levels, self._in_use, strict=True):
            inside = level.ids[rows] >= 0
            np.add.at(in_use, level.ids[rows[inside]], change[inside])
        of_domain = self._worked_out()
        for domain in np.flatnonzero(of_domain != self._of_domain).tolist():  # usually one
            self._steps[self._rows(domain)] = of_domain[domain]
        self._of_domain = of_domain
        self._judge_alone()

    def _follow_one(self, node: NodeView) -> bool:
        """Update one node by plain numbers. Returns False and changes nothing if these are not enough.

        They are not enough if the node has other devices than before, or if a domain becomes begun or is begun no more:
        then the scores of other nodes change too.
        """
        row, offered = node.first, self._gradient.offered
        devices = all_of_row(node, row, self._columns) if offered is None or offered.is_empty else -1
        if devices != self._all.item(row):
            return False
        used_now = devices - self._gradient.free_of(row)[1] if devices > 0 else 0
        change = used_now - self._used.item(row)
        levels = zip(self._levels, self._in_use, strict=True)
        inside = [(in_use, domain) for level, in_use in levels if (domain := level.ids.item(row)) >= 0]
        if any((in_use.item(domain) > 0) != (in_use.item(domain) + change > 0) for in_use, domain in inside):
            return False
        self._used[row] = used_now
        for in_use, domain in inside:
            in_use[domain] += change
        narrowest = self._levels[-1].ids.item(row)
        if narrowest >= 0:
            self._of_domain[narrowest] = self._steps[self._rows(narrowest)] = self._step_of(narrowest)
        else:
            self._judge_alone()
        return True

    def _step_of(self, domain: int) -> float:
        """The amount that `_worked_out` computes, for one domain of the narrowest level."""
        step: float = _FULLNESS * self._in_use[-1].item(domain) / self._devices.item(domain)
        for in_use, above in zip(self._in_use, self._above, strict=True):
            wider = above.item(domain)
            step += 100.0 if wider < len(in_use) and in_use[wider] > 0 else 0.0
        return step

    def _rows(self, domain: int) -> Rows:
        """The nodes of a domain of the narrowest level; for -1, the nodes in none."""
        return self._order[self._starts[domain + 1] : self._starts[domain + 2]]

    def _judge_alone(self) -> None:
        alone = self._rows(-1)
        if len(alone):
            self._steps[alone] = 100.0 * len(self._levels) * (self._used[alone] > 0)

    def _worked_out(self) -> Values:
        """For each domain of the narrowest level the amount that is added to the scores of its nodes."""
        steps: Values = _FULLNESS * self._in_use[-1] / self._devices
        for in_use, above in zip(self._in_use, self._above, strict=True):
            steps += np.append(100.0 * (in_use > 0), 0.0)[above]
        return steps
