"""Devices by name. Which one is asked for is known long before anything of it is imported."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from saccade.locks import forkless

if TYPE_CHECKING:
    from saccade.backend import Device

__all__ = ["DEVICES", "device_named"]

DEVICES = {
    "cpu": "saccade.backends.cpu.device:CPU",
    "cuda": "saccade.backends.cuda.device:CUDA",
    "reference": "saccade.backends.reference.device:REFERENCE",
}
"""Where the `Device` of each name is: its module, and what it is called there."""


def device_named(name: str) -> Device:
    """The device of this name.

    Raises:
        KeyError: If there is none.
    """
    return _device(DEVICES[name])


@cache
def _device(where: str) -> Device:
    module, _, value = where.partition(":")
    with forkless:
        found: Device = getattr(import_module(module), value)
    return found
