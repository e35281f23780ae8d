"""Operators that only move elements: all but Concat and Pad become one `Move`."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.measured import fitted, measured, rearranged, told
from saccade.frontend.onnx.moves import (
    broadcast_map,
    crop,
    move,
    reshaped,
    slice_map,
    spell,
    tile_map,
    transpose_map,
)
from saccade.frontend.onnx.open_axes import close, concatenated, is_open, reopened, room_of
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.specialise import refuse_reshape, refuse_sizes
from saccade.ir import Dim, Value
from saccade.ir.dim import add, floordiv, product, total
from saccade.ir.pixel_maps import depth_to_space, space_to_depth
from saccade.ir.reshape_maps import divisible, infer_reshape, quotient
from saccade.opdefs import Concat, Pad

__all__ = [
    "import_concat",
    "import_depth_to_space",
    "import_expand",
    "import_flatten",
    "import_pad",
    "import_reshape",
    "import_space_to_depth",
    "import_split",
    "import_squeeze",
    "import_tile",
    "import_transpose",
    "import_unsqueeze",
]

_PADS_INPUT_SINCE = 11
_TARGET_INPUT_SINCE = 5
_REPEATS_SINCE = 6


def import_reshape(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Reshape 1 (an attribute) to 25."""
    x = call.value(0)
    target: list[Dim] = list(call.integers("shape") or ())
    if call.opset >= _TARGET_INPUT_SINCE:
        target = list(call.dims(1, "the target of a reshape"))
    if not call.flag("allowzero"):
        # A 0 copies the operand's size, where it has that axis.
        if any(d == 0 and axis >= x.rank for axis, d in enumerate(target)):
            raise call.broken(f"target {spell(target)} keeps axes that {spell(x.shape)} lacks")
        target = [x.shape[axis] if d == 0 else d for axis, d in enumerate(target)]
    if target.count(-1) > 1 or any(isinstance(d, int) and d < -1 for d in target):
        raise call.broken(f"target {spell(target)}")
    # Without a -1 sizes that do not fit are found out by their product.
    if -1 in target:
        node = f"Reshape {call.name!r} to {spell(target)}"
        refuse_reshape(node, x.shape, target, call.build.own)
    shape = infer_reshape(x.shape, target)
    # Sizes that must divide for the file to make sense are taken to; the plan checks them.
    if shape is None:
        shape = infer_reshape(divisible(x.shape, target), target, assume=True)
    if shape is None:
        raise _mismatch(call, x.shape, target)
    counts = product(x.shape), product(shape)
    if isinstance(counts[0], int) and isinstance(counts[1], int) and counts[0] != counts[1]:
        raise call.broken(f"reshapes {spell(x.shape)} to {spell(shape)}")
    if not is_open(call, *x.shape, *shape):
        return [reshaped(call, x, shape)]
    try:
        return [reshaped(call, x, shape)]
    except Refusal:
        return [rearranged(call, x, shape)]


def _mismatch(call: OnnxNode, shape: Sequence[Dim], target: Sequence[Dim]) -> Exception:
    """The error for a -1 that is no whole number, or not known to be one."""
    message = f"reshapes {spell(shape)} to {spell(target)}"
    if all(isinstance(d, int) for d in (*shape, *target)):
        return call.broken(message)
    return Refusal(f"{message}, which does not divide for all sizes")


def import_flatten(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Flatten 1 to 25."""
    x = call.value(0)
    axis = call.integer("axis", 1)
    # The standard allows one more than there are: all axes are before it.
    axis = x.rank if axis == x.rank else call.axis(axis, x.rank)
    return [reshaped(call, x, (product(x.shape[:axis]), product(x.shape[axis:])))]


def _axes_argument(call: OnnxNode) -> tuple[int, ...] | None:
    """Axes of Squeeze and Unsqueeze: an attribute up to version 11, an input from 13 on."""
    if call.has(1):
        return call.integers_of(1, "the axes")
    return call.integers("axes")


def import_squeeze(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Squeeze 1 to 25."""
    x = call.value(0)
    given = _axes_argument(call)
    if given is None:
        # The rank of the result would depend on sizes.
        if any(not isinstance(d, int) for d in x.shape):
            raise Refusal("squeezes whichever axes are 1, of symbolic sizes")
        axes = tuple(axis for axis, d in enumerate(x.shape) if d == 1)
    else:
        axes = call.axes(given, x.rank)
    for axis in axes:
        if isinstance(x.shape[axis], int) and x.shape[axis] != 1:
            raise call.broken(f"axis {axis} of {spell(x.shape)} is not 1")
        # It is 1 for one size of the input only, and an axis cannot be there or not by size.
        if x.shape[axis] != 1:
            raise Refusal("squeezes an axis of symbolic size")
    return [reshaped(call, x, [d for axis, d in enumerate(x.shape) if axis not in axes])]


def import_unsqueeze(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Unsqueeze 1 to 25."""
    x = call.value(0)
    given = _axes_argument(call)
    if given is None:
        raise call.broken("no axes")
    # More axes than NumPy has, and than the reference could compute.
    if len(given) + x.rank > 64:
        raise call.broken(f"{len(given) + x.rank} axes")
    axes = call.axes(given, x.rank + len(given))
    shape: list[Dim] = list(x.shape)
    for axis in axes:
        shape.insert(axis, 1)
    return [reshaped(call, x, shape)]


def import_transpose(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Transpose 1 to 25."""
    x = call.value(0)
    order = call.integers("perm")
    if order is None:
        order = tuple(reversed(range(x.rank)))
    if sorted(order) != list(range(x.rank)):
        raise call.broken(f"perm {list(order)} of {x.rank} axes")
    return [move(call, x, transpose_map(x.shape, order))]


def import_expand(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Expand 8 and 13."""
    x = call.value(0)
    wanted = measured(call, 1, "the shape of an expand")
    if len(wanted) > 64 or any(isinstance(d, int) and d < 0 for d in wanted):
        raise call.broken(f"expands to {spell(wanted)}")
    rank = max(x.rank, len(wanted))
    have = (*(1,) * (rank - x.rank), *x.shape)
    want = (*(1,) * (rank - len(wanted)), *wanted)
    # Broadcast both ways: an axis of 1 in the target keeps what is there.
    target = tuple(h if w == 1 else w for h, w in zip(have, want, strict=True))
    y = move(call, x, broadcast_map(x.shape, target))
    call.build.spread[y] = x
    return [y]


def import_tile(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Tile 1 (along one axis) to 13."""
    x = call.value(0)
    repeats = call.dims(1, "the repeats of a tile")
    if call.opset < _REPEATS_SINCE:
        axes = call.integers_of(2, "the axis of a tile")
        if len(repeats) != 1 or len(axes) != 1:
            raise call.broken(f"tiles {spell(repeats)} along {list(axes)}")
        only = call.axis(axes[0], x.rank)
        repeats = tuple(repeats[0] if axis == only else 1 for axis in range(x.rank))
    if len(repeats) != x.rank or any(isinstance(d, int) and d < 0 for d in repeats):
        raise call.broken(f"repeats {spell(repeats)} of {spell(x.shape)}")
    y = move(call, x, tile_map(x.shape, repeats))
    # As an expand, where only axes of one element are repeated.
    if all(1 in pair for pair in zip(x.shape, repeats, strict=True)):
        call.build.spread[y] = x
    return [y]


def import_split(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Split 1 to 18: one `Move` for each part."""
    x = call.value(0)
    axis = call.axis(call.integer("axis", 0), x.rank)
    sizes = _split_sizes(call, x.shape[axis])
    # An axis as long as its parts together, which plans check where symbols do not tell.
    shape = (*x.shape[:axis], total(sizes), *x.shape[axis + 1 :])
    parts = []
    start: Dim = 0
    for size in sizes:
        parts.append(move(call, x, slice_map(shape, {axis: (start, size, 1)})))
        start = add(start, size)
    return parts


def _split_sizes(call: OnnxNode, size: Dim) -> list[Dim]:
    given: Sequence[Dim] | None = call.integers("split")
    if call.has(1):
        given = told(call, 1, "the sizes of a split")
    count = len(call.node.outputs)
    if given is not None:
        whole, text = total(given), spell(given)
        known = isinstance(size, int) and isinstance(whole, int)
        negative = any(isinstance(part, int) and part < 0 for part in given)
        if len(given) != count or negative or (known and whole != size):
            raise call.broken(f"splits {size} into {text} for {count} outputs")
        refuse_sizes(f"Split {call.name!r} into {text}", [size], [whole], call.build.own)
        return list(given)
    if not isinstance(size, int):
        raise Refusal("splits an axis of symbolic size evenly")
    if call.integer("num_outputs", count) != count:
        raise call.broken(f"num_outputs for {count} outputs")
    each = -(-size // count)
    last = size - each * (count - 1)
    # Only from version 18 on may the last part be smaller.
    if last < 0 or (call.opset < 18 and last != each):
        raise call.broken(f"splits {size} into {count} parts")
    return [*[each] * (count - 1), last]


def import_depth_to_space(call: OnnxNode) -> Sequence[Operand]:
    """ONNX DepthToSpace 1 to 28."""
    x = call.value(0)
    block, mode = call.integer("blocksize", 0), call.text("mode", "DCR")
    if x.rank != 4 or not 1 <= block <= 1 << 12 or mode not in ("DCR", "CRD"):
        raise call.broken(f"blocksize {block}, mode {mode!r} of {spell(x.shape)}")
    depth = quotient(x.shape[1], block * block)
    if depth is None:
        if isinstance(x.shape[1], int):
            raise call.broken(f"{x.shape[1]} channels do not make blocks of {block}")
        depth = floordiv(x.shape[1], block * block)  # the plan checks that it divides
    return [move(call, x, depth_to_space(x.shape, block, depth, mode))]


def import_space_to_depth(call: OnnxNode) -> Sequence[Operand]:
    """ONNX SpaceToDepth 1 to 28."""
    x = call.value(0)
    block, mode = call.integer("blocksize", 0), call.text("mode", "DCR")
    if x.rank != 4 or not 1 <= block <= 1 << 12 or mode not in ("DCR", "CRD"):
        raise call.broken(f"blocksize {block}, mode {mode!r} of {spell(x.shape)}")
    rows, columns = (floordiv(extent, block) for extent in x.shape[2:])
    if any(isinstance(d, int) and d % block for d in x.shape[2:]):
        raise call.broken(f"blocks of {block} in {spell(x.shape)}")
    # that symbolic sizes divide too is left to the plan to check
    return [move(call, x, space_to_depth(x.shape, block, rows, columns, mode))]


def import_concat(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Concat 1 to 13."""
    parts = [call.value(index) for index in range(len(call.operands))]
    if not parts:
        raise call.broken("no inputs")
    # The axis had a default up to version 3.
    axis = call.axis(call.integer("axis", 1 if call.opset < 4 else 0), parts[0].rank)
    parts = _some(_alike(call, parts, axis), axis)
    if len(parts) == 1:
        return parts
    if all(part.rank == parts[0].rank for part in parts) and is_open(
        call, *(part.shape[axis] for part in parts)
    ):
        return [concatenated(call, parts, axis)]
    return [call.emit(Concat(axis=axis), *parts)]


def _some(parts: list[Value], axis: int) -> list[Value]:
    """Those that have elements, if it is by this axis alone that others have none."""
    first = next((part for part in parts if part.rank and part.shape[axis] != 0), None)
    if first is None or any(part.rank != first.rank for part in parts):
        return parts
    shape = [0 if a == axis else size for a, size in enumerate(first.shape)]
    return [part for part in parts if list(part.shape) != shape or part.dtype is not first.dtype]


def _alike(call: OnnxNode, parts: Sequence[Value], axis: int) -> list[Value]:
    """Parts with sizes that depend on data as others say: side by side, they have to be equal."""
    found = list(parts)
    for other in range(parts[0].rank):
        sizes = {part.shape[other] for part in parts if other < part.rank and other != axis}
        known = [size for size in sizes if not is_open(call, size)]
        if len(known) != 1 or not is_open(call, *sizes):
            continue
        found = [
            fitted(call, part, other, known[0]) if is_open(call, part.shape[other]) else part
            for part in found
        ]
    return found


def import_pad(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Pad 1 to 25; negative pads crop first."""
    x = call.value(0)
    pads = _pads(call, x.rank)
    mode = call.text("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise call.broken(f"mode {mode!r}")
    value = call.number("value", 0.0)
    if call.has(2):
        constant = call.constant(2, "the value of a pad")
        if constant.size != 1:
            raise call.broken(f"a pad value of {constant.size} elements")
        value = float(constant.item())
    for axis, (before, after) in enumerate(pads):
        padded = (before, after) != (0, 0) and mode == "constant"
        if padded and is_open(call, x.shape[axis], before, after):
            x, pads[axis] = _filled_up(call, x, axis, pads[axis], value), (before, 0)
    cut = {axis: (_cropped(before), _cropped(after)) for axis, (before, after) in enumerate(pads)}
    x = move(call, x, crop(x.shape, cut))
    kept = tuple(
        (max(0, a) if isinstance(a, int) else a, max(0, b) if isinstance(b, int) else b)
        for a, b in pads
    )
    if all(pair == (0, 0) for pair in kept):
        return [x]
    return [call.emit(Pad(pads=kept, mode=mode, value=value), x)]


def _filled_up(call: OnnxNode, x: Value, axis: int, pads: tuple[Dim, Dim], value: float) -> Value:
    """A value padded at the end of an axis whose size depends on data, or by as much as that.

    There is room for all elements that there could be. What lies behind the true ones becomes the
    value of the pad, and of that as much is taken as is asked for.
    """
    size, wanted = x.shape[axis], add(x.shape[axis], pads[1])
    x = close(call, x, axis, value if x.dtype.is_float else int(value))
    missing = room_of(call, wanted) - room_of(call, size)
    if missing > 0:
        behind = tuple((0, missing if a == axis else 0) for a in range(x.rank))
        x = call.emit(Pad(pads=behind, value=value), x)
    return reopened(call, x, axis, wanted)


def _cropped(pad: Dim) -> int:
    """Elements that a negative pad cuts off; the sign of a symbolic one is not known."""
    return max(0, -pad) if isinstance(pad, int) else 0


def _pads(call: OnnxNode, rank: int) -> list[tuple[Dim, Dim]]:
    """Before and after for each axis."""
    # The attribute had another name in version 1.
    flat: Sequence[Dim] = call.integers("pads" if call.opset > 1 else "paddings") or ()
    if call.opset >= _PADS_INPUT_SINCE:
        flat = told(call, 1, "the padding")
    axes = list(range(rank))
    if call.has(3):
        axes = [call.axis(a, rank) for a in call.integers_of(3, "the axes")]
    count = len(axes)
    if len(flat) != 2 * count or len(set(axes)) != count:
        raise call.broken(f"pads {spell(flat)} for {count} axes")
    pads: list[tuple[Dim, Dim]] = [(0, 0)] * rank
    for position, axis in enumerate(axes):
        pads[axis] = (flat[position], flat[count + position])
    return pads
