"""Graphs come back from files as they were, and damaged files are errors."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saccade import graphfile
from saccade.errors import CacheError
from saccade.ir import DType, Factor, Graph, IndexMap, Node, Value, serialize
from saccade.ir.dim_parser import parse_dims
from saccade.ir.expr import parse
from saccade.opdefs import Conv2d, DepthToSpaceStore, Move, Pad, Pointwise, Resize

# What is said before anything in the file is believed: nothing follows, no error of a parser's.
_DAMAGED = "(is damaged|not a graph of this version)$"
_FOREIGN = "(cut short|empty file|not a graph of this version|is damaged)$"
_ANOTHER_SIZE = r"(cut short|is damaged|[0-9]+ bytes of constants, not [0-9]+)$"


def save(graph: Graph, path: Path) -> None:
    with path.open("wb") as file:
        serialize.save(graph, file.fileno())


def load(path: Path) -> Graph:
    with path.open("rb") as file:
        return serialize.load(file.fileno(), str(path))


def _graph() -> Graph:
    n, h = parse_dims("N"), parse_dims("(H+1)//2")
    x = Value("x", DType.F32, (n, 3, h, 8))
    w = Value("w", DType.F32, (8, 3, 1, 1))
    again = Value("w again", DType.F32, (8, 3))
    index = Value("i", DType.I64, (3,))
    nothing = Value("nothing", DType.U8, (0, 4))
    odd = Value("odd", DType.BOOL, (13,))
    a = Value("a", DType.F32, (n, 2, parse_dims("2*((H+1)//2)"), 16))
    b = Value("b", DType.F32, (16, parse_dims("2*((H+1)//2)"), 2, n))
    c = Value("c", DType.F32, (16, parse_dims("2*((H+1)//2)+H"), 2, n))
    d = Value("d", DType.F32, (32, parse_dims("2*((H+1)//2)+H"), 2, n))
    e = Value("e", DType.BOOL, d.shape)
    conv = Conv2d(epilogue=parse("clip($0, -inf, 6.0)"), store=DepthToSpaceStore(2, "CRD"))
    sizes = [(f,) for f in a.shape]
    factors = tuple(Factor(a.shape[axis], axis, 0, -1 if axis == 1 else 1) for axis in (3, 2, 1, 0))
    move = Move(map=IndexMap(tuple(sizes), factors, (1, 1, 1, 1)))
    pad = Pad(pads=((0, 0), (0, parse_dims("H")), (0, 0), (0, 0)), value=float("-inf"))
    resize = Resize(sizes=d.shape, scales=(2.0, 1.0, 1.0, 1.0))
    compare = Pointwise(expr=parse("greater($0, 0.1)"), dtype=DType.BOOL)
    weights = np.arange(24, dtype=np.float32)
    return Graph(
        inputs=(x,),
        outputs=(e, odd, index, nothing, again),
        nodes=(
            Node(conv, (x, w), (a,), "first"),
            Node(move, (a,), (b,)),
            Node(pad, (b,), (c,)),
            Node(resize, (c,), (d,)),
            Node(compare, (d,), (e,)),
        ),
        constants={
            w: weights.reshape(8, 3, 1, 1),
            again: weights.reshape(8, 3),
            index: np.asarray([1, -2, 2**40]),
            nothing: np.zeros((0, 4), np.uint8),
            odd: np.arange(13) % 3 == 0,
        },
        output_names=("one", "two", "three", "four", "five"),
        name="näme",
    )


def _assert_same(left: Graph, right: Graph) -> None:
    def spell(graph: Graph) -> list[object]:
        values = {v: (v.name, v.dtype, v.shape) for v in graph.values()}
        nodes = [
            (n.op, n.name, [values[v] for v in n.inputs], [values[v] for v in n.outputs])
            for n in graph.nodes
        ]
        sides = [[values[v] for v in side] for side in (graph.inputs, graph.outputs)]
        return [sides, nodes, list(values.values()), graph.output_names, graph.name]

    assert spell(left) == spell(right)
    for a, b in zip(left.constants.values(), right.constants.values(), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)


def test_round_trip(tmp_path: Path) -> None:
    save(_graph(), tmp_path / "g")
    back = load(tmp_path / "g")
    _assert_same(_graph(), back)
    assert {v.name for v in back.inputs} == {"x"}
    assert back.nodes[0].inputs[1] in back.constants


def test_constants_are_mapped_read_only_aligned_and_shared(tmp_path: Path) -> None:
    save(_graph(), tmp_path / "g")
    arrays = {v.name: a for v, a in load(tmp_path / "g").constants.items()}
    for array in arrays.values():
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            array.setflags(write=True)
    assert all(a.ctypes.data % 64 == 0 for a in arrays.values() if a.size)
    assert arrays["w"].ctypes.data == arrays["w again"].ctypes.data


def test_saving_is_deterministic(tmp_path: Path) -> None:
    save(_graph(), tmp_path / "a")
    save(load(tmp_path / "a"), tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def _padding(data: bytes) -> set[int]:
    """Bytes that mean nothing: what aligns the header and the constants."""
    size = int.from_bytes(data[12:20], "little")
    start = -(-(52 + size) // 64) * 64
    used = set(range(52 + size))
    for length, offset in ((96, 0), (24, 128), (0, 192), (13, 192)):
        used |= set(range(start + offset, start + offset + length))
    return set(range(len(data))) - used


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "g"
    save(_graph(), path)
    data = path.read_bytes()
    idle = _padding(data)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x10
        path.write_bytes(changed)
        if position in idle:
            _assert_same(load(path), _graph())
            continue
        with pytest.raises(CacheError, match=_DAMAGED):
            load(path)
        with pytest.raises(CacheError, match=_DAMAGED), path.open("rb") as file:
            serialize.check(file.fileno(), str(path))
    path.write_bytes(data)
    with path.open("rb") as file:
        serialize.check(file.fileno(), str(path))


def test_a_graph_that_somebody_else_sealed_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with path.open("wb") as file:
        serialize.save(_graph(), file.fileno(), lambda text: serialize.digest(b"key" + text))
    for read in (serialize.load, serialize.check):
        with path.open("rb") as file:
            read(file.fileno(), "", lambda text: serialize.digest(b"key" + text))
            with pytest.raises(CacheError, match="damaged"):
                read(file.fileno(), "")


def _raw(path: Path, names: set[str]) -> dict[str, bytes]:
    with path.open("rb") as file:
        found = graphfile.raw_constants(file.fileno(), str(path), serialize.digest, names)
    return {name: read().tobytes() for name, read in found.items()}


def test_constants_can_be_read_without_the_graph(tmp_path: Path) -> None:
    path = tmp_path / "g"
    save(_graph(), path)
    truth = {value.name: array.tobytes() for value, array in _graph().constants.items()}
    assert len(truth) > 3 and _raw(path, set(truth)) == truth
    one = {"odd": truth["odd"]}
    assert _raw(path, {"odd", "who?"}) == one
    data = path.read_bytes()
    noticed = 0
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x10
        path.write_bytes(changed)
        try:
            assert _raw(path, {"odd"}) == one
        except CacheError:
            noticed += 1
    (length,) = struct.unpack_from("<Q", data, 12)
    assert noticed == 52 + length + len(truth["odd"]), "all of the header, and what is read"


def test_no_page_of_a_saved_graph_is_a_hole(tmp_path: Path) -> None:
    """On a full disk in memory, one that is looked at through a mapping ends the process."""
    written: list[bytes] = []

    class Watched:
        def __init__(self, file: object) -> None:
            self.at = 0

        def __enter__(self) -> Watched:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def write(self, data: bytes | memoryview) -> None:
            written.append(bytes(data))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(serialize.os, "fdopen", lambda file, *_, **__: Watched(file))
        serialize.save(_graph(), 0)
    save(_graph(), tmp_path / "g")
    assert b"".join(written) == (tmp_path / "g").read_bytes(), "nothing was left out"


def test_every_truncation_and_extension_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "g"
    save(_graph(), path)
    data = path.read_bytes()
    for end in [*range(0, len(data), 13), len(data) - 1]:
        path.write_bytes(data[:end])
        with pytest.raises(CacheError, match=_ANOTHER_SIZE if end else "empty file$"):
            load(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(CacheError, match=r"[0-9]+ bytes of constants, not [0-9]+$"):
        load(path)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_foreign_files_are_errors(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(data)
    with pytest.raises(CacheError, match=_FOREIGN):
        load(path)
    path.write_bytes(b"SACCADE\0" + data)
    with pytest.raises(CacheError, match=_FOREIGN):
        load(path)


def test_folders_and_empty_files_are_errors(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for path, reason in (
        (tmp_path, "No such device|Invalid argument"),
        (tmp_path / "empty", "empty file"),
    ):
        file = os.open(path, os.O_RDONLY)
        with pytest.raises(CacheError, match=reason):
            serialize.load(file, str(path))
        os.close(file)


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    x = Value("x", DType.F32, ())
    op = Pointwise(expr=parse("$0"), dtype=DType.F32)
    object.__setattr__(op, "expr", object())
    with pytest.raises(TypeError, match="attribute of type object"):
        save(Graph((x,), (x,), (Node(op, (x,), (Value("y", DType.F32, ()),)),)), tmp_path / "g")


def _resident(path: Path) -> int:
    """Bytes of a file that this process has mapped and in memory."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name = line.split()[0]
        if "-" in name and not name.endswith(":"):
            inside = line.endswith(str(path))
        elif inside and name == "Rss:":
            total += 1024 * int(line.split()[1])
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="no /proc/self/smaps")
def test_constants_that_were_let_go_of_come_back(tmp_path: Path) -> None:
    values = [Value(f"w{i}", DType.F32, (1 << 20,)) for i in range(2)]
    arrays = [np.arange(1 << 20, dtype=np.float32) + i for i in range(2)]
    graph = Graph((), tuple(values), (), MappingProxyType(dict(zip(values, arrays, strict=True))))
    save(graph, tmp_path / "graph")
    loaded = list(load(tmp_path / "graph").constants.values())
    assert all(np.array_equal(a, b) for a, b in zip(loaded, arrays, strict=True))
    assert _resident(tmp_path / "graph") > 7 << 20
    graphfile.let_go(loaded[0])
    assert 3 << 20 < _resident(tmp_path / "graph") < 5 << 20
    graphfile.let_go(loaded[1].reshape(2, -1)[1])  # a part, a view of a view
    assert _resident(tmp_path / "graph") < 3 << 20
    assert all(np.array_equal(a, b) for a, b in zip(loaded, arrays, strict=True))


def test_arrays_of_ones_own_are_left_alone() -> None:
    array = np.arange(1 << 20)
    for one in (array, array[5:], np.empty(0), np.frombuffer(bytearray(1 << 16), np.uint8)):
        before = one.copy()
        graphfile.let_go(one)
        assert np.array_equal(one, before)
