"""What the code of suppression in strips depends on, and what each of its phases is called with."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.kernels.cuda.base import Entry

__all__ = [
    "KINDS",
    "LISTS",
    "ORDERED",
    "ORDER_BLOCK",
    "ROWS",
    "SuppressConfig",
    "block_of",
    "entry_of",
]

ROWS, _OTHERS = 128, 32
"""Boxes of a program and those that it compares them with at a time: of overlaps."""
ORDER_BLOCK, _ORDER_OTHERS = 32, 128
"""The same of scores."""
_RESOLVE_WARPS = {1024: 16, 512: 8, 256: 4, 128: 2, 64: 1}
ORDERED = ("ranked", "corners", "kinds", "taken", "dropped")
"""Temporaries that `order` writes."""
KINDS = ("ranked", "corners", "kinds", "taken", "counts", "pairs", "kept", "kept_kinds", "dropped")
LISTS = ("listed", "levels")
_FILES = dict.fromkeys(("members", "gather", "order", "order_listed"), "suppress_order")


@dataclass(frozen=True)
class SuppressConfig:
    """What the code of one phase depends on; what a phase does not, has its default.

    Attributes:
        phase: The Triton function.
        boxes, scores: Elements that they are stored in.
        double: Whether boxes are compared in float64.
        grouped: Whether boxes of different groups leave each other alone.
        ordered: Whether boxes come by group and then by falling score.
        classes: Whether the operator is `NonMaxSuppression`.
        centred: See there.
        least: What scores have to exceed; None for no threshold.
        threshold: What ratios have to exceed, as the arithmetic's type has it.
        strip: Boxes of a strip.
        part: Those of them that are resolved at a time.
        room: Boxes of the longest strip.
        block: Boxes of a program that lists them.
    """

    phase: str
    boxes: str = "fp32"
    scores: str = "fp32"
    double: bool = False
    grouped: bool = False
    ordered: bool = False
    classes: bool = False
    centred: bool = False
    least: float | None = None
    threshold: float = 0.0
    strip: int = 0
    part: int = 0
    room: int = 0
    block: int = 0


def block_of(config: SuppressConfig) -> tuple[int, int]:
    """Boxes of a program that drops, and of those that stay at a time.

    In order few programs have anything to do, and few steps are what counts.
    """
    if config.ordered:
        return (8, 128) if config.double else (16, 256)
    # Of more boxes a thread would hold so much that fewer programs are there at a time.
    return (16 if config.double else 32), _OTHERS


def entry_of(config: SuppressConfig) -> Entry:
    """The Triton function of a phase, with the types and constants that it is compiled for."""
    pointers, integers, constants, warps = _PHASES[config.phase](config)
    core = f"nms.{_FILES.get(config.phase, 'suppress')}_code:{config.phase}"
    return Entry(core, pointers, integers, constants, warps=warps, contract=False)


_Code = tuple[
    tuple[tuple[str, str], ...], tuple[str, ...], dict[str, int | float | bool | str], int
]


def _typed(config: SuppressConfig, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Temporaries with their elements."""
    elements = {"corners": "fp64" if config.double else "fp32", "dropped": "i8", "levels": "fp32"}
    elements |= {"kept": elements["corners"], "kinds": "i64", "kept_kinds": "i64"}
    return tuple((name, elements.get(name, "i32")) for name in names)


_OF_STRIP = ("count", "strip", "strips", "first", "most")
_OF_SCORE = ("count", "classes", "score_image", "score_class", "score_row")


def _list_code(config: SuppressConfig) -> _Code:
    made = ("blocks", *LISTS, "taken") if config.phase == "gather" else ("blocks",)
    constants: dict[str, int | float | bool | str] = {
        "BLOCK": config.block, "BOUNDED": config.least is not None, "LEAST": config.least or 0.0,
    }  # fmt: skip
    return (("scores", config.scores), *_typed(config, made)), _OF_SCORE, constants, 4


def _listed_code(config: SuppressConfig) -> _Code:
    read = (*LISTS, "ranked", "corners", "taken")
    integers = ("count", "classes", "box_image", "box_row", "box_step", "lanes")
    constants: dict[str, int | float | bool | str] = {
        "BLOCK": ORDER_BLOCK, "OTHERS": _ORDER_OTHERS, "CENTRED": config.centred,
        "DOUBLE": config.double,
    }  # fmt: skip
    return (("boxes", config.boxes), *_typed(config, read)), integers, constants, 4


def _order_code(config: SuppressConfig) -> _Code:
    stored = (("boxes", config.boxes), ("scores", config.scores), ("groups", "i64"))
    pointers = (*stored, *_typed(config, ORDERED))
    integers = (
        "count", "classes", "box_image", "box_row", "box_step", "score_image", "score_class",
        "score_row", "group_row",
    )  # fmt: skip
    constants: dict[str, int | float | bool | str] = {
        "BLOCK": ORDER_BLOCK, "OTHERS": _ORDER_OTHERS, "CLASSES": config.classes,
        "CENTRED": config.centred, "DOUBLE": config.double, "BOUNDED": config.least is not None,
        "DOUBLE_SCORES": config.scores == "fp64" and not config.classes,
        "GROUPED": config.grouped, "ORDERED": config.ordered, "LEAST": config.least or 0.0,
    }  # fmt: skip
    return pointers, integers, constants, 4


def _compare_code(config: SuppressConfig) -> _Code:
    pointers = _typed(config, tuple(name for name in KINDS if name != "ranked"))
    constants: dict[str, int | float | bool | str] = {
        "STRIP": config.strip, "ROOM": config.room, "ROWS": min(config.strip, ROWS),
        "BLOCK": block_of(config)[0], "OTHERS": block_of(config)[1], "THRESHOLD": config.threshold,
        "DOUBLE": config.double, "GROUPED": config.grouped, "ORDERED": config.ordered,
    }  # fmt: skip
    return pointers, (*_OF_STRIP, "lanes"), constants, 4


def _resolve_code(config: SuppressConfig) -> _Code:
    selected = "i32" if config.classes else "i64"
    pointers = (*_typed(config, (*KINDS, "words")), ("selected", selected))
    constants: dict[str, int | float | bool | str] = {
        "STRIP": config.strip, "ROOM": config.room, "PART": config.part, "CLASSES": config.classes,
        "GROUPED": config.grouped,
    }  # fmt: skip
    return pointers, (*_OF_STRIP, "pitch", "step"), constants, _RESOLVE_WARPS[config.part]


def _rows_code(_config: SuppressConfig) -> _Code:
    pointers = (("counts", "i32"), ("stays", "i32"), ("selected", "i64"), ("number", "i64"))
    integers = (
        "problems", "classes", "strips", "most", "capacity", "programs", "y_row", "y_step",
    )  # fmt: skip
    return pointers, integers, {"BLOCK": 128}, 4


_PHASES = {
    "members": _list_code, "gather": _list_code, "order": _order_code,
    "order_listed": _listed_code, "compare": _compare_code, "resolve": _resolve_code,
    "rows": _rows_code,
}  # fmt: skip
