"""What operators over boxes that take several launches plan alike: their phases and temporaries."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.kernels.base import Temp
from saccade.kernels.cuda.base import Entry
from saccade.kernels.cuda.roi.box_operands import BOX_INTEGERS

__all__ = ["Constant", "RoiPhaseConfig", "Scratchpad", "phase_entry"]

Constant = int | float | bool


@dataclass(frozen=True)
class RoiPhaseConfig:
    """What the code of one phase depends on.

    Attributes:
        phase: Its Triton function, in `_PHASES`.
        elements: Of those pointers that are no int32, by name.
        constants: Its `tl.constexpr` parameters by name.
        warps: Of a program.
    """

    phase: str
    elements: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Constant], ...]
    warps: int


@dataclass(frozen=True, slots=True)
class _Code:
    """Parameters of a phase, and which integers may be multiples of 16."""

    core: str
    pointers: str
    integers: tuple[str, ...]
    multiples: str
    contract: bool = True


_GRAD = ("g_k", "g_p", "g_q")
_PLACES = ("a_k", "a_p", "a_q")
_X = ("x_n", "x_h", "x_w")
_AT = ("at_k", "at_c", "at_p", "at_q")
_Y = ("y_n", "y_c", "y_h", "y_w")
_PHASES = {
    "axes": _Code(
        "tables_code:axes",
        "boxes images rows columns row_bands column_bands row_spans column_spans extents owners"
        " bad",
        (*BOX_INTEGERS, "h", "w", "row_pitch", "column_pitch"),
        "row_pitch column_pitch",
        contract=False,
    ),
    "listed": _Code(
        "tables_code:listed", "extents owners lists begins numbers", ("count", "down", "along"), ""
    ),
    "last": _Code(
        "tables_code:to_last",
        "x y",
        ("c", "bins", "q", "blocks", "parts", "x_k", "x_c", "x_p", "x_q"),
        "c",
    ),
    "align": _Code(
        "align_gradient_code:spread",
        "grad rows columns row_bands column_bands lists begins numbers y",
        ("count", "c", "h", "w", "down", "along", "row_pitch", "column_pitch", *_GRAD, *_Y),
        "c w row_pitch column_pitch g_k g_p g_q y_n y_c y_h y_w",
    ),
    "pointed": _Code(
        "pool_gradient_code:pointed",
        "places boxes images bin_rows bin_columns extents owners bad",
        (*BOX_INTEGERS, "c", "h", "w", *_PLACES),
        "c a_k a_p a_q",
    ),
    "pool": _Code(
        "pool_gradient_code:spread",
        "grad places bin_rows bin_columns lists begins numbers y",
        ("c", "h", "w", "down", "along", *_GRAD, *_PLACES, *_Y),
        "c w g_k g_p g_q a_k a_p a_q y_n y_c y_h y_w",
    ),
    "ps": _Code(
        "ps_gradient_code:spread",
        "grad rows columns row_spans column_spans owners y",
        ("count", "c", "h", "w", "row_pitch", "column_pitch", "g_k", "g_c", "g_p", "g_q", *_Y),
        "w row_pitch column_pitch y_n y_c y_h",
    ),
    "weighed": _Code(
        "pool_windows_code:weighed",
        "boxes images worth bad",
        (*BOX_INTEGERS, "h", "w"),
        "",
        contract=False,
    ),
    "windows": _Code(
        "pool_windows_code:windows",
        "x worth most codes",
        ("c", "h", "w", *_X),
        "c x_n x_h x_w",
        contract=False,
    ),
    "pooled": _Code(
        "pool_windows_code:pooled",
        "x boxes images worth most codes y places",
        (*BOX_INTEGERS, "c", "h", "w", *_X, "y_k", "y_c", "y_p", "y_q", *_AT),
        "c x_n x_h x_w y_k y_c y_p y_q at_k at_c at_p at_q",
        contract=False,
    ),
}


def phase_entry(config: RoiPhaseConfig) -> Entry:
    """What is compiled for a phase."""
    code, elements = _PHASES[config.phase], dict(config.elements)
    return Entry(
        f"roi.{code.core}",
        tuple((name, elements.get(name, "i32")) for name in code.pointers.split()),
        code.integers,
        dict(config.constants),
        multiples=tuple(code.multiples.split()),
        warps=config.warps,
        contract=code.contract,
    )


class Scratchpad:
    """The temporaries of one call by name, numbered as they come."""

    def __init__(self) -> None:
        self._kept: dict[str, Temp] = {}

    def room(self, name: str, count: int, width: int = 4) -> Temp:
        """A temporary of so many elements, of so many bytes each.

        Args:
            name: Of its pointer.
            count: Elements.
            width: Bytes of each.
        """
        if name not in self._kept:
            self._kept[name] = Temp(len(self._kept), max(16, count * width))
        return self._kept[name]

    def __getitem__(self, name: str) -> Temp:
        return self._kept[name]
