"""Slices as DeviceTaintRules make them: the devices that a rule selects have its taint besides their own.

Taints that keep no pods away are left out, and a taint that several rules give a device counts once: neither changes
an answer. When it was added matters to evictions alone; of several rules the one that came first counts.
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
    """The rules that taint devices, by what they select."""

    def __init__(self, rules: Iterable[DeviceTaintRule] = ()) -> None:
        self._by_place: dict[Place, dict[str, DeviceTaintRule]] = {}
        for each in rules:
            self.put(each)

    def put(self, rule: DeviceTaintRule) -> None:
        """A rule came; one without effect on allocations is left out."""
        if is_blocking(rule.spec.taint.effect):
            self._by_place.setdefault(_place(rule), {})[rule.metadata.name] = rule

    def drop(self, rule: DeviceTaintRule) -> None:
        """A rule went."""
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
        """The rules that mean the driver and the pool of a slice, by name."""
        driver, pool = each.spec.driver, each.spec.pool.name
        places: tuple[Place, ...] = ((None, None), (driver, None), (None, pool), (driver, pool))
        found = {name: rule for place in places for name, rule in self._by_place.get(place, {}).items()}
        return [found[name] for name in sorted(found)]


class TaintedSlices:
    """Tells of the slices of a cluster, and of those that rules change, as the rules make them."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._rules = TaintRules()
        self._told: dict[str, ResourceSlice] = {}
        self._by_pool: dict[tuple[str, str], dict[str, ResourceSlice]] = {}
        """By driver and pool: the slices as they are published, by name."""

    def slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """A slice came (no `old`), changed, or went (no `new`)."""
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
        """A rule came (no `old`), changed, or went (no `new`): tell of the slices with other taints."""
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
        """Rules count no more: tell of the slices that they have tainted."""
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
    """What a rule selects; without a selector all devices, as with kube-scheduler."""
    return rule.spec.device_selector or DeviceTaintSelector()


def _place(rule: DeviceTaintRule) -> Place:
    return _selector(rule).driver, _selector(rule).pool


def _pool(each: ResourceSlice) -> tuple[str, str]:
    return each.spec.driver, each.spec.pool.name


def _by_device(rules: Iterable[DeviceTaintRule]) -> dict[str | None, dict[TaintKey, DeviceTaint]]:
    """By name of a device, None for all devices: the taints of rules."""
    found: dict[str | None, dict[TaintKey, DeviceTaint]] = {}
    for rule in rules:
        taint = rule.spec.taint
        key = taint.key, taint.value, taint.effect
        of_device = found.setdefault(_selector(rule).device, {})
        given = DeviceTaint(taint.key, taint.effect, taint.value, taint.time_added)
        of_device[key] = _earlier(given, of_device.get(key))
    return found


def _earlier(one: DeviceTaint, other: DeviceTaint | None) -> DeviceTaint:
    """The one of two equal taints that was added first, as the API server writes times; without a time it is late."""
    return one if other is None or (one.time_added or "~") < (other.time_added or "~") else other


def _tainted(device: Device, taints: Mapping[str | None, Mapping[TaintKey, DeviceTaint]]) -> Device:
    own = {(each.key, each.value, each.effect) for each in device.taints}
    given = dict(taints.get(None, {}))
    for key, taint in taints.get(device.name, {}).items():
        given[key] = _earlier(taint, given.get(key))
    more = [taint for key, taint in given.items() if key not in own]
    return msgspec.structs.replace(device, taints=[*device.taints, *more]) if more else device
