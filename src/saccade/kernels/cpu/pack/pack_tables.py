"""What native packers do, for each function that packs; and their tables as packed constants.

Weights that a run computes are packed by phases of the program (`in_program`), whose tables of
lanes and taps are constants like others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from saccade.ir import Array
from saccade.kernels.cpu.conv2d.pack_depthwise import depthwise_panels
from saccade.kernels.cpu.conv2d.pack_direct import (
    conv_panels,
    matrix_panels,
    parts_of_channels_panels,
    transposed_panels,
)
from saccade.kernels.cpu.conv2d.pack_lattice import lattice_panels
from saccade.kernels.cpu.conv2d.pack_winograd import winograd_panels
from saccade.kernels.cpu.excite.pack_gates import gates_panels
from saccade.kernels.cpu.pack.panels_config import Panels, stored_panels

__all__ = ["PANELS", "panel_beside", "panel_lanes", "panels_in"]

PANELS: Mapping[str, Callable[..., tuple[Panels, ...]]] = MappingProxyType(
    {
        "pack_conv_weights": conv_panels,
        "pack_depthwise": depthwise_panels,
        "pack_gates": gates_panels,
        "pack_lattice": lattice_panels,
        "pack_matrix": matrix_panels,
        "pack_parts_of_channels": parts_of_channels_panels,
        "pack_transposed": transposed_panels,
        "pack_winograd": winograd_panels,
    }
)


def panels_in(
    function: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    source: str,
    parameters: tuple[Any, ...],
) -> tuple[Panels, ...]:
    """What a native packer makes of weights that are stored anyhow; nothing where it cannot.

    Args:
        function: Of `PANELS`.
        shape: Of the weights.
        strides: Elements between neighbours along each axis.
        source: Type of their elements.
        parameters: Of the function.
    """
    describe = PANELS.get(function)
    found = describe(shape, *parameters) if describe is not None else ()
    return tuple(stored_panels(one, shape, strides, source) for one in found)


def panel_lanes(*described: Any) -> Array:  # noqa: ANN401 - as `panels_in` takes them
    """`Panels.lanes` of the only panels that `panels_in` describes."""
    (panels,) = panels_in(*described)
    return panels.lanes


def panel_beside(*described: Any) -> Array:  # noqa: ANN401 - as `panels_in` takes them
    """`Panels.beside` of all of the only panels that `panels_in` describes."""
    (panels,) = panels_in(*described)
    return panels.beside(range(panels.count))
