"""Mutants of tiny models, and a process of bounded memory that imports them.

    python frontend_mutants.py SEED COUNT

Prints one line for each mutant that neither imported nor raised a SaccadeError.
"""

from __future__ import annotations

import random
import resource
import sys
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from frontend_models import text_model
from hostile_names import TRAP, is_safe
from onnx import TensorProto, helper

from saccade import Limits, Options, passes
from saccade.errors import CompileError, SaccadeError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.ir import Graph
from saccade.ir.dim import symbols_of
from saccade.ir.printer import format_graph
from saccade.layout.sizes import shapes_of

MEMORY = 256 << 20
HOSTILE = [0, 1, -1, 2, 3, 7, 64, 255, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63)]
OPTIONS = Options(limits=Limits(elements=1 << 24, extent=1 << 16, seconds=30))
"""Bounds that leave what is allowed small enough for a process of bounded memory."""


def seeds() -> list[onnx.ModelProto]:
    """Small models that reach most importers."""
    generator = np.random.default_rng(3)

    def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
        return {k: generator.normal(size=s).astype(np.float32) for k, s in shapes.items()}

    chain = text_model(
        "a = Conv<pads=[1,1,1,1], strides=[2,2], group=1>(x, w, b) r = Relu(a) s = Shape(r) "
        "n = Gather<axis=0>(s, i0) c = Gather<axis=0>(s, i1) h = Div(c, two) "
        "un = Unsqueeze(n, ax) uh = Unsqueeze(h, ax) t = Concat<axis=0>(un, two1, uh, rest) "
        "v = Reshape(r, t) q = Transpose<perm=[0,2,1,3]>(v) z = Softmax<axis=1>(q) "
        "p = ReduceMean<axes=[3]>(z) y = Slice(p, ax, far, one, step)",
        weights=weights(w=(4, 3, 3, 3), b=(4,))
        | {
            "i0": np.asarray(0),
            "i1": np.asarray(1),
            "two": np.asarray(2),
            "two1": np.asarray([2]),
            "ax": np.asarray([0]),
            "rest": np.asarray([-1]),
            "far": np.asarray([2**31 - 1]),
            "one": np.asarray([1]),
            "step": np.asarray([1]),
        },
    )
    images = text_model(
        "a = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], ceil_mode=1>(x) "
        'b = Resize<mode="linear">(a, , s) c = ConvTranspose<strides=[2,2]>(b, w) '
        'd = DepthToSpace<blocksize=2, mode="CRD">(c) e = Pad(d, p, v) '
        "f = AveragePool<kernel_shape=[2,2]>(e) g, h = Split<axis=1>(f) k = Tile(g, r) "
        "l = Expand(k, r) m = InstanceNormalization(l, one, one) y = Clip(m, v)",
        weights=weights(w=(3, 8, 2, 2), one=(1,))
        | {
            "s": np.asarray([1, 1, 1.5, 2], np.float32),
            "p": np.asarray([0, 0, 1, 1, 0, 0, 1, 1]),
            "v": np.asarray(0.5, np.float32),
            "r": np.asarray([1, 1, 1, 1]),
        },
    )
    matrix = text_model(
        "a = Gemm<transB=1, alpha=0.5>(x, w, b) c = BatchNormalization(a, b, b, b, b) "
        "d = LayerNormalization<axis=-1>(c, b) k = CumSum(d, ax) m = ArgMax<axis=1>(k) "
        "f = Cast<to=1>(m) o = ConstantOfShape(sh) r = Range(z, l, st) u = MatMul(o, r) "
        "t = Add(f, u) "
        "y = If(co) <then_branch = t1 () => (float e) { e = Relu(t) }, "
        "else_branch = t2 () => (float g) { g = Neg(t) }>",
        "float[N, 5] x",
        weights=weights(w=(4, 5), b=(4,))
        | {
            "ax": np.asarray(1),
            "sh": np.asarray([2, 3]),
            "z": np.asarray(0, np.float32),
            "l": np.asarray(3, np.float32),
            "st": np.asarray(1, np.float32),
            "co": np.asarray(True),
        },
    )
    regions = text_model(
        "o = Conv<pads=[1,1,1,1]>(x, v) m = Conv<pads=[1,1,1,1]>(x, u) "
        "d = DeformConv<pads=[1,1,1,1], group=1, offset_group=1>(x, w, o, b, m) "
        "n = LpNormalization<axis=1, p=1>(d) s = SpaceToDepth<blocksize=1>(n) "
        "k = NonMaxSuppression<center_point_box=0>(boxes, scores, most, iou, least) "
        "at = Gather<axis=1>(k, c02) bx = GatherND(boxes, at) g = Gather<axis=1>(k, c0) "
        'r = RoiAlign<output_height=2, output_width=2, mode="max">(s, bx, g) '
        "p = MaxRoiPool<pooled_shape=[2,2], spatial_scale=0.5>(s, five) l = ReduceL1(p, ax) "
        "y = ReduceL2<keepdims=0>(r, ax) z = Identity(l)",
        "float[N, 3, 6, 6] x, float[1, 9, 4] boxes, float[1, 2, 9] scores",
        "float y, float z",
        22,
        weights(w=(4, 3, 3, 3), v=(18, 3, 3, 3), u=(9, 3, 3, 3), b=(4,))
        | {
            "most": np.asarray([3]),
            "iou": np.asarray([0.5], np.float32),
            "least": np.asarray([0.1], np.float32),
            "c02": np.asarray([0, 2]),
            "c0": np.asarray(0),
            "five": np.asarray([[0, 0, 0, 4, 5]], np.float32),
            "ax": np.asarray([1, 2, 3]),
        },
    )
    turns = text_model(
        "e = SequenceEmpty<dtype=1>() s, v, r = Loop(n, t, e, x) <body = b (int64 i, bool c, seq(float[3, 4]) q, float[3, 4] u) "  # noqa: E501
        "=> (bool c2, seq(float[3, 4]) q2, float[3, 4] u2, float[3, 4] o) { m = ReduceMax<keepdims=0>(u) c2 = Less(m, most) "  # noqa: E501
        "u2 = If(c2) <then_branch = p () => (float[3, 4] a) { a = MatMul(u, w) }, else_branch = d () => (float[3, 4] a2) { a2 = Neg(u) }> "  # noqa: E501
        "q2 = SequenceInsert(q, u2) o = Add(u2, x) }> l = ConcatFromSequence<axis=0>(s) "
        "f, y = Scan<num_scan_inputs=1, body = g (float[4] k, float[4] j) => (float[4] k2, float[4] z) { k2 = Add(k, j) z = Mul(k2, k2) }>(zero, l) "  # noqa: E501
        "h = ReduceSum<keepdims=0>(r, ax)",
        "int64 n, float[3, 4] x",
        "float y, float v, float h",
        18,
        weights(w=(4, 4), zero=(4,))
        | {"t": np.asarray(True), "most": np.asarray(9, np.float32), "ax": np.asarray([0])},
    )
    return [chain, images, matrix, regions, turns]


def mutate_bytes(data: bytes, dice: random.Random) -> bytes:
    """Flip bits, cut, drop, repeat or overwrite some bytes."""
    out = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 4, 16])):
        at = dice.randrange(len(out))
        kind = dice.randrange(5)
        if kind == 0:
            out[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            out[at] = dice.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif kind == 2:
            del out[at : at + dice.randrange(1, 9)]
        elif kind == 3:
            out[at:at] = out[at : at + dice.randrange(1, 40)]
        else:
            out = out[: at + 1]
        if not out:
            break
    return bytes(out)


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            repeated = not hasattr(value, "ListFields")
            for inner in value if repeated else [value]:
                yield from _messages(inner)


def mutate_fields(model: onnx.ModelProto, dice: random.Random) -> bytes:
    """Swap, drop and replace whole fields of the message."""
    mutant = onnx.ModelProto()
    mutant.CopyFrom(model)
    for _ in range(dice.choice([1, 1, 2, 3])):
        message = dice.choice(list(_messages(mutant)))
        fields = message.ListFields()
        if not fields:
            continue
        field, value = dice.choice(fields)
        _change(message, field, value, dice)
    return mutant.SerializeToString()


def _change(message: Any, field: Any, value: Any, dice: random.Random) -> None:
    whole = (field.TYPE_INT64, field.TYPE_UINT64, field.TYPE_INT32)
    repeated = hasattr(value, "append") or hasattr(value, "add")
    if repeated and len(value):
        at = dice.randrange(len(value))
        if dice.random() < 0.3:
            del value[at]
        elif field.type in whole:
            value[at] = dice.choice(HOSTILE)
        elif len(value) > 1 and field.type == field.TYPE_MESSAGE:
            value[at].CopyFrom(value[at - 1])
        elif field.type == field.TYPE_STRING:
            value[at] = dice.choice([*value, TRAP, value[at] + TRAP])
        elif field.type == field.TYPE_BYTES:
            value[at] = dice.choice(list(value))
    elif not repeated and field.type in whole and dice.random() < 0.8:
        limit = 2**31 - 1 if field.type == field.TYPE_INT32 else 2**63 - 1
        setattr(message, field.name, max(-limit, min(limit, dice.choice(HOSTILE))))
    elif not repeated and field.type == field.TYPE_STRING and dice.random() < 0.8:
        setattr(message, field.name, dice.choice([TRAP, value + TRAP, TRAP * 1000]))
    elif not repeated and field.type == field.TYPE_ENUM:
        setattr(message, field.name, dice.choice(list(field.enum_type.values_by_number)))
    elif field.type == field.TYPE_BYTES and dice.random() < 0.8:
        step = len(value) // 8 * 8
        noise = [dice.choice(HOSTILE).to_bytes(8, "little", signed=True) for _ in range(step // 8)]
        setattr(message, field.name, b"".join(noise) + value[step:])
    else:
        message.ClearField(field.name)


def mutate_depth(model: onnx.ModelProto, dice: random.Random) -> bytes:
    """Put a long chain in front of an operand, of nodes that keep, double or repeat it."""
    mutant = onnx.ModelProto()
    mutant.CopyFrom(model)
    node = dice.choice([n for n in mutant.graph.node if n.input])
    at = dice.randrange(len(node.input))
    names = [node.input[at], *(f"deep{i}" for i in range(dice.choice([3, 40, 400])))]
    kinds = dice.choice(
        [["Relu"], ["Sin", "Exp"], ["Concat"], ["Add"], ["Concat", "Sigmoid"], ["Transpose"]]
    )
    chain = []
    for index, (before, after) in enumerate(pairwise(names)):
        kind = kinds[index % len(kinds)]
        more = {"axis": dice.choice([0, 1, -1])} if kind == "Concat" else {}
        operands = [before, before] if kind in ("Concat", "Add") else [before]
        chain.append(helper.make_node(kind, operands, [after], **more))
    node.input[at] = names[-1]
    nodes = [*chain, *mutant.graph.node]
    del mutant.graph.node[:]
    mutant.graph.node.extend(nodes)
    return mutant.SerializeToString()


def mutate_dtypes(model: onnx.ModelProto, dice: random.Random) -> bytes:
    """Give a tensor or an input another element type, or make a tensor sparse."""
    mutant = onnx.ModelProto()
    mutant.CopyFrom(model)
    kind = dice.choice(list(TensorProto.DataType.values()))
    tensor = dice.choice(list(mutant.graph.initializer))
    way = dice.randrange(4)
    if way == 0:
        dice.choice(list(mutant.graph.input)).type.tensor_type.elem_type = kind
    elif way == 1:
        tensor.data_type = kind
    elif way == 2:
        filled = helper.make_tensor(tensor.name, TensorProto.STRING, [1], [TRAP.encode()])
        if kind != TensorProto.STRING:
            filled = TensorProto(name=tensor.name, data_type=kind, dims=[1], raw_data=bytes(16))
        tensor.CopyFrom(filled)
    else:
        sparse = mutant.graph.sparse_initializer.add(dims=[dice.choice(HOSTILE[:12])])
        sparse.values.CopyFrom(tensor)
        mutant.graph.initializer.remove(tensor)
    return mutant.SerializeToString()


def mutants(seed: int, count: int) -> Iterator[bytes]:
    """`count` mutants of each tiny model."""
    dice = random.Random(seed)
    for model in seeds():
        data = model.SerializeToString()
        yield data
        for index in range(count):
            yield mutate(model, index, dice)


def mutate(model: onnx.ModelProto, kind: int, dice: random.Random) -> bytes:
    """A mutant of one of the kinds, which take turns."""
    if kind % 5 < 2:
        return mutate_fields(model, dice)
    if kind % 5 == 2:
        return mutate_bytes(model.SerializeToString(), dice)
    return (mutate_depth if kind % 5 == 3 else mutate_dtypes)(model, dice)


def problem(data: bytes) -> str | None:
    """What is wrong with how a mutant was treated: nothing if it was lowered or was refused."""
    try:
        graph = frontend.load(data, OPTIONS)
        if not isinstance(graph, Graph):
            return f"gave {type(graph).__name__}"
        graph = passes.run(graph, limits=OPTIONS.limits)
        text = format_graph(graph)
        shapes_of(graph, graph.with_bounds(dict.fromkeys(_symbols(graph), 2)), OPTIONS.limits)
    except CompileError as error:
        return f"CompileError: {error}"  # by a pass, which has to take whatever was imported
    except SaccadeError as error:
        text = str(error)
        if isinstance(error, UnsupportedModelError) and not error.rows:
            return "an empty table"
    except BaseException as error:  # noqa: BLE001 - whatever else comes out is what the test is after
        return f"{type(error).__name__}: {error}"
    return None if is_safe(text) else f"shows {text!r}"


def _symbols(graph: Graph) -> set[str]:
    dims = [dim for value in graph.inputs for dim in value.shape]
    return {name for dim in dims for name in symbols_of(dim)}


def main() -> None:
    seed, count = map(int, sys.argv[1:3])
    for model in seeds():
        assert problem(model.SerializeToString()) is None  # imports all before memory is bounded
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    warnings.simplefilter("error")
    for index, data in enumerate(mutants(seed, count)):
        found = problem(data)
        if found is not None:
            print(f"mutant {index} of seed {seed}: {found}")


if __name__ == "__main__":
    main()
