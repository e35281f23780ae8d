"""Code of the phases of deformable convolution by its columns, and of its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from saccade.kernels.base import View
from saccade.kernels.cuda.base import Entry

__all__ = [
    "CLEARED", "PACKING", "CudaDeformGradientConfig", "GradientTile", "entry_of", "integers_of",
    "packing_programs",
]  # fmt: skip

GradientTile = tuple[int, int, int, int, int]
"""Rows, columns and depth of a block, warps, stages."""
PACKING: GradientTile = (128, 0, 0, 4, 1)
"""Channels of one output that a program of `prepare` packs, all taps of them."""
CLEARED = 1024
"""Counts that a program of it clears."""


def packing_programs(weight: View) -> int:
    """Programs that pack weights [K, C, R, S]."""
    return weight.shape[0] * -(-weight.shape[1] // PACKING[0])


@dataclass(frozen=True)
class CudaDeformGradientConfig:
    """What the code depends on.

    Attributes:
        phase: Name of the Triton function.
        elements: Of its pointers, in order.
        tile: Rows, columns and depth of a block, those that the phase has, then warps and stages.
        flags: Its switches, in order.
        taps: Of the window, where the phase depends on it.
        window: Strides, dilation, padding at the top and the left, where the phase does.
        precision: How products of float32 are made, for `tl.dot`.
    """

    phase: str
    elements: tuple[str, ...]
    tile: GradientTile
    flags: tuple[bool, ...] = ()
    taps: tuple[int, int] = (1, 1)
    window: tuple[int, int, int, int, int, int] = (1, 1, 1, 1, 0, 0)
    precision: str = "ieee"


@dataclass(frozen=True, slots=True)
class _GradientPhase:
    """Parameters of a Triton function: names, separated by spaces."""

    module: str
    pointers: str
    integers: str
    sizes: str
    flags: str = ""
    uses: str = ""


_OFFSETS = "o_n o_c o_p o_q m_n m_c m_p m_q"
_TABLES = "cells below beyond factor"
_LISTS = "number pixels taps offset_groups image_cells"
_PHASES: Mapping[str, _GradientPhase] = MappingProxyType(
    {
        "last": _GradientPhase(
            "gradient_copies", "x y", "first_image channels h wd x_n x_c x_h x_w", "BP BC",
        ),
        "prepare": _GradientPhase(
            "gradient_copies", "w packed counts",
            "cleared packing outputs c columns w_k w_c w_r w_s", "BLOCK", "SPLIT", "TAPS ALL",
        ),
        "samples": _GradientPhase(
            "gradient_samples", f"offset mask {_TABLES} counts arrival",
            f"number pixels first_image p q h wd offset_groups {_OFFSETS}", "BLOCK",
            "MASK LISTED DOUBLE", "WINDOW",
        ),
        "starts": _GradientPhase("gradient_samples", "counts start", "number", "BLOCK"),
        "listed": _GradientPhase("gradient_samples", "cells arrival start found", _LISTS, "BLOCK"),
        "records": _GradientPhase(
            "gradient_samples", f"{_TABLES} counts start found row weight", f"{_LISTS} buckets",
            "BLOCK STEP", "DOUBLE",
        ),
        "columns": _GradientPhase(
            "gradient", "grad w kept",
            "pixels p q offset_groups shared segment c k first_channel channels "
            "g_n g_p g_q g_image", "BM BN BK", "DOUBLE", "TAPS PRECISION",
        ),
        "slopes": _GradientPhase(
            "gradient", f"kept x {_TABLES} sums d_offset d_mask",
            "number pixels first_image p q h wd offset_groups shared first_channel channels "
            f"again pieces x_n x_h x_w {_OFFSETS} x_image", "BP BC", "OFFSET MASK DOUBLE", "TAPS",
        ),
        "gather": _GradientPhase(
            "gradient_samples", "columns counts start row weight y",
            "number h wd offset_groups shared image_cells first_image first_channel channels "
            "y_n y_c y_h y_w", "BP BC", "UNIT FLAT DOUBLE",
        ),
        "weights": _GradientPhase(
            "gradient", f"grad x {_TABLES} parts",
            "pixels p q h wd offset_groups shared segment c k splits again "
            "g_n g_p g_q x_n x_h x_w g_image x_image", "BM BN BK", "DOUBLE", "TAPS PRECISION",
        ),
        "bias": _GradientPhase(
            "gradient_copies", "grad parts", "pixels g_image p q outputs splits again g_n g_p g_q",
            "BM BN", "DOUBLE",
        ),
        "sampled": _GradientPhase(
            "columns", "x offset mask kept",
            "pixels first_image x_image p q h wd offset_groups shared segment c x_n x_h x_w "
            f"{_OFFSETS}", "BP BC", "MASK DOUBLE", "WINDOW",
        ),
        "multiplied": _GradientPhase(
            "columns", "kept w bias y",
            "pixels first_image p q groups c k b_k y_n y_k y_p y_q", "BM BN BK",
            "BIAS UNIT DOUBLE SPLIT", "TAPS PRECISION",
        ),
        "add": _GradientPhase(
            "gradient_copies", "parts y",
            "splits number outputs c columns y_k y_c y_r y_s", "BLOCK",
        ),
    }
)  # fmt: skip
_MULTIPLES = frozenset(
    ("c", "k", "shared", "segment", "first_channel", "channels", "outputs", "g_n", "g_p", "g_q",
     "x_n", "x_h", "x_w", "y_n", "y_c", "y_h", "y_w", "y_k", "y_p", "y_q")
)  # fmt: skip


def integers_of(phase: str) -> tuple[str, ...]:
    """The integers of a phase, in order."""
    return tuple(_PHASES[phase].integers.split())


def entry_of(config: CudaDeformGradientConfig) -> Entry:
    """The code of a phase."""
    phase = _PHASES[config.phase]
    constants: dict[str, int | float | bool | str] = {}
    constants.update(zip(phase.sizes.split(), config.tile, strict=False))
    constants.update(zip(phase.flags.split(), config.flags, strict=True))
    uses = phase.uses.split()
    if "TAPS" in uses:
        constants["TAPS"] = config.taps[0] * config.taps[1]
    if "ALL" in uses:
        constants["BT"] = 1 << (config.taps[0] * config.taps[1] - 1).bit_length()
    if "PRECISION" in uses:
        constants["PRECISION"] = config.precision
    if "WINDOW" in uses:
        names = ("STRIDE_H", "STRIDE_W", "DILATION_H", "DILATION_W", "PAD_T", "PAD_L")
        constants.update(zip(("R", "S", *names), (*config.taps, *config.window), strict=True))
    integers = integers_of(config.phase)
    return Entry(
        f"deform.{phase.module}_code:{config.phase}",
        tuple(zip(phase.pointers.split(), config.elements, strict=True)), integers, constants,
        multiples=tuple(name for name in integers if name in _MULTIPLES),
        warps=config.tile[3], stages=config.tile[4],
    )  # fmt: skip
