"""Follows what drivers and administrators offer: slices, with the taints of rules where those count, and classes."""

from __future__ import annotations

from gangline import State, model, resources
from gangline.dra.live import Devices
from gangline.dra.taint_rules import TaintedSlices
from gangline_plugins.dynamic_resources.listening import KeptListener
from gangline_plugins.dynamic_resources.tainted import TaintedDevices
from gangline_plugins.dynamic_resources.written import Written


class Offering:
    """Passes slices and classes on to the devices of a cluster, and slices to the records of claims and taints."""

    def __init__(self, state: State, devices: Devices, written: Written) -> None:
        self._state = state
        self._devices = devices
        self._written = written
        self.tainted = TaintedDevices()
        """The devices with taints that end pods."""
        self._slices = TaintedSlices(self._shown)
        state.store(resources.RESOURCE_SLICES).subscribe(KeptListener(self._slice_changed))
        state.store(resources.DEVICE_CLASSES).subscribe(KeptListener(devices.class_changed))

    def _slice_changed(self, old: model.ResourceSlice | None, new: model.ResourceSlice | None) -> None:
        self._written.slice_changed(old, new)
        self._slices.slice_changed(old, new)

    def _shown(self, old: model.ResourceSlice | None, new: model.ResourceSlice | None) -> None:
        """A slice has changed, or a DeviceTaintRule that concerns its devices has."""
        self._devices.slice_changed(old, new)
        self.tainted.slice_changed(old, new)

    def heed_taint_rules(self) -> None:
        """Devices have the taints of DeviceTaintRules too, until the last configuration ends that has asked for it."""
        self._state.shared(_HeededTaintRules, self._state, self._slices)

    def read_lists(self) -> None:
        """Selectors read attributes that are lists, until the last configuration ends that has asked for it."""
        self._state.shared(_ReadLists, self._state, self._devices)


class _ReadLists:
    """Lets attributes be lists, until the last configuration that wants this ends."""

    def __init__(self, state: State, devices: Devices) -> None:
        state.at_end(lambda: devices.read_lists(False))
        devices.read_lists(True)


class _HeededTaintRules:
    """Applies the DeviceTaintRules to the slices, until the last configuration that heeds rules ends."""

    def __init__(self, state: State, slices: TaintedSlices) -> None:
        state.at_end(slices.forget_rules)
        state.store(resources.DEVICE_TAINT_RULES).subscribe(KeptListener(slices.rule_changed))
