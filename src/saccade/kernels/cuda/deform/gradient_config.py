"""Code of the phases of deformable convolution by its columns, and of its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from saccade.kernels.base import Launch, Operand, View
from saccade.kernels.cuda.base import Entry

__all__ = [
    "PREPARING", "CudaDeformGradientConfig", "GradientTile", "clearing_programs",
    "copying_programs", "entry_of", "packing_programs", "phase_launch",
]  # fmt: skip

GradientTile = tuple[int, int, int, int, int]
"""Rows, columns and depth of a block, warps, stages."""
PREPARING: GradientTile = (128, 64, 64, 4, 1)
"""Channels of one output whose taps a program of `prepare` packs, pixels and channels of a copy."""
_CLEARED = 1024  # counts that a program of it clears
_TERMS = 1024
"""Terms that matrix units add up before a sum in float32 takes them over."""


def packing_programs(weight: View) -> int:
    """Programs that pack weights [K, C, R, S]."""
    return weight.shape[0] * -(-weight.shape[1] // PREPARING[0])


def copying_programs(view: View, images: int) -> int:
    """Programs that copy so many images [N, C, H, W]."""
    _, c, h, w = view.shape
    return images * -(-h * w // PREPARING[1]) * -(-c // PREPARING[2])


def clearing_programs(counts: int) -> int:
    """Programs that clear counts."""
    return -(-counts // _CLEARED)


@dataclass(frozen=True)
class CudaDeformGradientConfig:
    """What the code depends on.

    Attributes:
        phase: Name of the Triton function.
        elements: Of its pointers, in order.
        tile: Rows, columns and depth of a block, those that the phase has, then warps and stages.
        flags: Its switches, in order.
        parts: Of float32, whose products are those of `half_products_code`; 0 where it is whole.
        taps: Of the window, where the phase depends on it.
        window: Strides, dilation, padding at the top and the left, where the phase does.
        precision: How products of float32 are made, for `tl.dot`.
    """

    phase: str
    elements: tuple[str, ...]
    tile: GradientTile
    flags: tuple[bool, ...] = ()
    parts: int = 0
    taps: tuple[int, int] = (1, 1)
    window: tuple[int, int, int, int, int, int] = (1, 1, 1, 1, 0, 0)
    precision: str = "ieee"


@dataclass(frozen=True, slots=True)
class _GradientPhase:
    """A Triton function and its parameters: names, separated by spaces."""

    function: str
    pointers: str
    integers: str
    sizes: str
    flags: str = ""
    uses: str = ""
    gluon: bool = False


_OFFSETS = "o_n o_c o_p o_q m_n m_c m_p m_q"
_TABLES = "cells below beyond factor"
_SCALED = ("number", "1", "2", "3", "s0", "s1", "s2", "s3")
_LISTS = "number pixels taps offset_groups image_cells"
_PHASES: Mapping[str, _GradientPhase] = MappingProxyType(
    {
        "prepare": _GradientPhase(
            "deform.gradient_copies_code:prepare", "w packed counts x x_last grad grad_last slots",
            "packing clearing copying cleared outputs c columns w_k w_c w_r w_s first_image "
            "all_channels h wd x_n x_c x_h x_w p q plane s_n s_k s_p s_q", "BLOCK BP BC", "",
            "TAPS ALL PARTS",
        ),
        "cleared": _GradientPhase("deform.half_products_code:cleared", "slots", "", "BLOCK"),
        "largest": _GradientPhase(
            "deform.half_products_code:largest", "x mask w grad slots",
" ".join(f"{of}_{name}" for of in "xmwg" for name in _SCALED), "BLOCK",
        ),
        "samples": _GradientPhase(
            "deform.gradient_samples_code:samples", f"offset mask {_TABLES} counts arrival",
            f"number pixels first_image p q h wd offset_groups {_OFFSETS}", "BLOCK",
            "MASK LISTED DOUBLE", "WINDOW",
        ),
        "starts": _GradientPhase(
            "deform.gradient_samples_code:starts", "counts start", "number", "BLOCK"
        ),
        "listed": _GradientPhase(
            "deform.gradient_samples_code:listed", "cells arrival start found", _LISTS, "BLOCK"
        ),
        "records": _GradientPhase(
            "deform.gradient_samples_code:records",
            f"{_TABLES} counts start found row weight", f"{_LISTS} buckets", "BLOCK STEP", "DOUBLE",
        ),
        "columns": _GradientPhase(
            "deform.gradient_code:columns", "grad w kept slots",
            "pixels p q offset_groups shared segment c k first_channel channels plane "
            "shares g_n g_p g_q g_image", "BM BN BK", "DOUBLE", "TAPS PRECISION PARTS CHUNK",
        ),
        "slopes": _GradientPhase(
            "deform.gradient_code:slopes", f"kept x {_TABLES} sums d_offset d_mask",
            "number pixels first_image p q h wd offset_groups shared first_channel channels "
            f"again pieces x_n x_h x_w {_OFFSETS} x_image", "BP BC", "OFFSET MASK DOUBLE", "TAPS",
        ),
        "gather": _GradientPhase(
            "deform.gradient_samples_code:gather", "columns counts start row weight y",
            "number h wd offset_groups shared image_cells first_image first_channel channels "
            "y_n y_c y_h y_w", "BP BC", "UNIT FLAT DOUBLE",
        ),
        "weights": _GradientPhase(
            "deform.gradient_code:weights", "grad kept parts slots",
            "pixels p q offset_groups shared segment c k first_channel channels plane kept_plane "
            "splits again g_n g_p g_q g_image", "BM BN BK", "DOUBLE MASK",
            "TAPS PRECISION PARTS CHUNK",
        ),
        "bias": _GradientPhase(
            "deform.gradient_copies_code:bias", "grad parts slots",
            "pixels g_image p q outputs splits again plane g_n g_p g_q", "BM BN", "DOUBLE", "PARTS",
        ),
        "sampled": _GradientPhase(
            "deform.columns_code:sampled", "x offset mask slots kept",
            "pixels first_image x_image p q h wd offset_groups shared first_channel channels plane "
            f"x_n x_h x_w {_OFFSETS}", "BP BC", "MASK DOUBLE", "WINDOW PARTS",
        ),
        "multiplied": _GradientPhase(
            "deform.columns_code:multiplied", "kept w slots parts",
            "pixels groups c k splits plane", "BM BN BK", "DOUBLE MASK",
            "TAPS PRECISION PARTS CHUNK",
        ),
        "arranged": _GradientPhase(
            "deform.hopper_copies_code:arranged", "w packed x x_last offset mask squares",
            "squaring packing first_image p q h wd offset_groups pixels rows outputs padded c "
            f"columns w_k w_c w_r w_s x_n x_c x_h x_w l_n l_h l_w {_OFFSETS}", "BLOCK BP BC",
            "MASK HALF", "WINDOW ALL",
        ),
        "fused": _GradientPhase(
            "deform.hopper_code:fused", "x squares w parts",
            "pixels first_pixel rows shared k shares", "BM BN BK", "", "TAPS STAGES", gluon=True,
        ),
        "summed": _GradientPhase(
            "deform.columns_code:summed", "parts bias y",
            "pixels first_image p q outputs splits b_k y_n y_k y_p y_q", "BM BN",
            "BIAS LAST FLAT DOUBLE",
        ),
        "add": _GradientPhase(
            "deform.gradient_copies_code:add", "parts y",
            "splits outputs c columns y_k y_c y_r y_s", "BLOCK", "", "TAPS ALL",
        ),
    }
)  # fmt: skip
_MULTIPLES = frozenset(
    ("c", "k", "shared", "segment", "first_channel", "channels", "outputs", "all_channels", "plane",
     "kept_plane", "g_n", "g_p", "g_q", "x_n", "x_h", "x_w", "y_n", "y_c", "y_h", "y_w", "y_k",
     "y_p", "y_q")
)  # fmt: skip


_SINCE = ((0, 0), (3, 9))
"""The first Triton that compiles a phase; whose Gluon takes PTX with addresses in shared memory."""


def _integers_of(phase: str) -> tuple[str, ...]:
    return tuple(_PHASES[phase].integers.split())


def phase_launch(
    config: CudaDeformGradientConfig, operands: Mapping[str, Operand], known: Mapping[str, int],
    programs: int,
) -> Launch:  # fmt: skip
    """A phase, which takes its own integers of all that are known."""
    integers = {name: known[name] for name in _integers_of(config.phase)}
    return Launch(config, dict(operands), integers, programs)


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
    if "PARTS" in uses:
        constants["PARTS"] = config.parts
    if "CHUNK" in uses:
        constants["CHUNK"] = max(1, _TERMS // config.tile[2])
    if "PRECISION" in uses:
        constants["PRECISION"] = config.precision
    if "STAGES" in uses:
        constants["STAGES"] = config.tile[4]
    if "WINDOW" in uses:
        names = ("STRIDE_H", "STRIDE_W", "DILATION_H", "DILATION_W", "PAD_T", "PAD_L")
        constants.update(zip(("R", "S", *names), (*config.taps, *config.window), strict=True))
    integers = _integers_of(config.phase)
    return Entry(
        phase.function,
        tuple(zip(phase.pointers.split(), config.elements, strict=True)), integers, constants,
        multiples=tuple(name for name in integers if name in _MULTIPLES),
        warps=config.tile[3], stages=config.tile[4], gluon=phase.gluon, since=_SINCE[phase.gluon],
    )  # fmt: skip
