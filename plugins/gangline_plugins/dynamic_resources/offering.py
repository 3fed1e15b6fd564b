"""Follows what drivers and administrators offer: slices, with the taints of rules where those count, and classes."""

from __future__ import annotations

from gangline import State, model, resources
from gangline.dra.live import Devices
from gangline.dra.taint_rules import TaintedSlices
from gangline_plugins.dynamic_resources.listening import KeptListener
from gangline_plugins.dynamic_resources.written import Written


class Offering:
    """Tells the devices of a cluster, and who knows what is written to claims, of slices and classes."""

    def __init__(self, state: State, devices: Devices, written: Written) -> None:
        self._state = state
        self._written = written
        self._slices = TaintedSlices(devices.slice_changed)
        self._heeds_taint_rules = False
        state.store(resources.RESOURCE_SLICES).subscribe(KeptListener(self._slice_changed))
        state.store(resources.DEVICE_CLASSES).subscribe(KeptListener(devices.class_changed))

    def _slice_changed(self, old: model.ResourceSlice | None, new: model.ResourceSlice | None) -> None:
        self._written.slice_changed(old, new)
        self._slices.slice_changed(old, new)

    def heed_taint_rules(self) -> None:
        """From now on devices have the taints of DeviceTaintRules too."""
        if not self._heeds_taint_rules:
            self._heeds_taint_rules = True
            self._state.store(resources.DEVICE_TAINT_RULES).subscribe(KeptListener(self._slices.rule_changed))
