"""Adds the taints of DeviceTaintRules to slices: a device that a rule selects gets the rule's taint besides its own.

Taints that keep no pods away are left out, and a taint that several rules give to one device is added once: neither
changes an answer. The time at which a taint was added matters only to evictions; of equal taints the earliest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from gangline.dra.reading import is_blocking
from gangline.model.device_taint_rules import DeviceTaintRule, DeviceTaintSelector
from gangline.model.resource_slices import Device, DeviceTaint, ResourceSlice

Tell = Callable[[ResourceSlice | None, ResourceSlice | None], None]
Place = tuple[str | None, str | None]
"""Driver and pool of a selector; None means any."""
TaintKey = tuple[str, str, str]
"""Key, value and effect of a taint."""


class TaintRules:
    """The rules that taint devices, by the driver and pool that they select."""

    def __init__(self, rules: Iterable[DeviceTaintRule] = ()) -> None:
        self._by_place: dict[Place, dict[str, DeviceTaintRule]] = {}
        for each in rules:
            self.put(each)

    def put(self, rule: DeviceTaintRule) -> None:
        """Add or replace a rule; a rule whose taint keeps no pods away is left out."""
        if is_blocking(rule.spec.taint.effect):
            self._by_place.setdefault(_place(rule), {})[rule.metadata.name] = rule

    def drop(self, rule: DeviceTaintRule) -> None:
        """Remove a rule."""
        place = _place(rule)
        rules = self._by_place.get(place, {})
        rules.pop(rule.metadata.name, None)
        if not rules:
            self._by_place.pop(place, None)

    def applied(self, each: ResourceSlice) -> ResourceSlice:
        """The slice with the taints of the rules; the very same slice if no rule selects a device of it."""
        rules = self._of(each) if self._by_place else []
        if not rules:
            return each
        taints = _by_device(rules)
        devices = [_tainted(device, taints) for device in each.spec.devices]
        if all(after is before for after, before in zip(devices, each.spec.devices, strict=True)):
            return each
        spec = msgspec.structs.replace(each.spec, devices=devices)
        return msgspec.structs.replace(each, spec=spec)

    def _of(self, each: ResourceSlice) -> list[DeviceTaintRule]:
        """The rules that select the driver and the pool of a slice, in the order of their names."""
        driver, pool = each.spec.driver, each.spec.pool.name
        places: tuple[Place, ...] = ((None, None), (driver, None), (None, pool), (driver, pool))
        found = {name: rule for place in places for name, rule in self._by_place.get(place, {}).items()}
        return [found[name] for name in sorted(found)]


class TaintedSlices:
    """Passes the slices of a cluster on with the taints of the rules, and again when rules change the taints."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._rules = TaintRules()
        self._told: dict[str, ResourceSlice] = {}
        self._by_pool: dict[tuple[str, str], dict[str, ResourceSlice]] = {}
        """By driver and pool: the slices as they are published, by name."""

    def slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """A slice was added (no `old`), changed or deleted (no `new`)."""
        if old is not None:
            self._forget(old)
        if new is not None:
            self._by_pool.setdefault(_pool(new), {})[new.metadata.name] = new
            self._show(new)
        elif old is not None:
            self._tell(self._told.pop(old.metadata.name), None)

    def _forget(self, each: ResourceSlice) -> None:
        known = self._by_pool.get(_pool(each), {})
        known.pop(each.metadata.name, None)
        if not known:
            self._by_pool.pop(_pool(each), None)

    def rule_changed(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        """A rule was added (no `old`), changed or deleted (no `new`): pass on the slices whose taints it changes."""
        if old is not None and new is not None and old.spec == new.spec:
            return  # only its status has changed
        affected: dict[str, ResourceSlice] = {}
        for rule in (old, new):
            if rule is not None and is_blocking(rule.spec.taint.effect):
                affected.update((each.metadata.name, each) for each in self._selected(rule))
        if old is not None:
            self._rules.drop(old)
        if new is not None:
            self._rules.put(new)
        for each in affected.values():
            if self._rules.applied(each) != self._told[each.metadata.name]:
                self._show(each)

    def forget_rules(self) -> None:
        """Drop all rules, and pass on the slices that they have tainted without these taints."""
        self._rules = TaintRules()
        for each in [each for slices in self._by_pool.values() for each in slices.values()]:
            if self._told[each.metadata.name] is not each:
                self._show(each)

    def _show(self, each: ResourceSlice) -> None:
        name, shown = each.metadata.name, self._rules.applied(each)
        before = self._told.get(name)
        self._told[name] = shown
        self._tell(before, shown)

    def _selected(self, rule: DeviceTaintRule) -> Iterator[ResourceSlice]:
        """The slices with a device that a rule selects."""
        driver, pool = _place(rule)
        if driver is not None and pool is not None:
            places = [(driver, pool)]
        else:
            places = [each for each in self._by_pool if driver in (None, each[0]) and pool in (None, each[1])]
        name = _selector(rule).device
        for place in places:
            for each in self._by_pool.get(place, {}).values():
                if name is None or any(device.name == name for device in each.spec.devices):
                    yield each


def _selector(rule: DeviceTaintRule) -> DeviceTaintSelector:
    """The selector of a rule. A rule without a selector selects all devices, as in kube-scheduler."""
    return rule.spec.device_selector or DeviceTaintSelector()


def _place(rule: DeviceTaintRule) -> Place:
    return _selector(rule).driver, _selector(rule).pool


def _pool(each: ResourceSlice) -> tuple[str, str]:
    return each.spec.driver, each.spec.pool.name


def _by_device(rules: Iterable[DeviceTaintRule]) -> dict[str | None, dict[TaintKey, DeviceTaint]]:
    """The taints of rules by the device that they name; under None the taints for all devices."""
    found: dict[str | None, dict[TaintKey, DeviceTaint]] = {}
    for rule in rules:
        taint = rule.spec.taint
        key = taint.key, taint.value, taint.effect
        of_device = found.setdefault(_selector(rule).device, {})
        given = DeviceTaint(taint.key, taint.effect, taint.value, taint.time_added)
        of_device[key] = _earlier(given, of_device.get(key))
    return found


def _earlier(one: DeviceTaint, other: DeviceTaint | None) -> DeviceTaint:
    """The one of two equal taints that was added earlier; a taint without a time counts as the later one."""
    return one if other is None or (one.time_added or "~") < (other.time_added or "~") else other


def _tainted(device: Device, taints: Mapping[str | None, Mapping[TaintKey, DeviceTaint]]) -> Device:
    own = {(each.key, each.value, each.effect) for each in device.taints}
    given = dict(taints.get(None, {}))
    for key, taint in taints.get(device.name, {}).items():
        given[key] = _earlier(taint, given.get(key))
    more = [taint for key, taint in given.items() if key not in own]
    return msgspec.structs.replace(device, taints=[*device.taints, *more]) if more else device
