"""Pickers: the policies that choose which queued job starts next."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reference_scheduler.core.pickers.base import OrderedPicker, Picker
from reference_scheduler.core.pickers.conservative import ConservativePicker
from reference_scheduler.core.pickers.easy import EasyPicker, EasyShortestPicker
from reference_scheduler.core.pickers.fair import FairPicker
from reference_scheduler.core.pickers.scored import (
    F1Picker,
    FcfsPicker,
    SjfPicker,
    UnicepPicker,
    Wfp3Picker,
)

__all__ = ["PICKERS", "OrderedPicker", "Picker"]

PICKERS: Mapping[str, Callable[[], Picker]] = {
    FairPicker.name: FairPicker,
    FcfsPicker.name: FcfsPicker,
    SjfPicker.name: SjfPicker,
    F1Picker.name: F1Picker,
    Wfp3Picker.name: Wfp3Picker,
    UnicepPicker.name: UnicepPicker,
    EasyPicker.name: EasyPicker,
    EasyShortestPicker.name: EasyShortestPicker,
    ConservativePicker.name: ConservativePicker,
}
