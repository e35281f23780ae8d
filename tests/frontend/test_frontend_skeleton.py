"""Weights that stay in the file: the same graph, the same refusals, and nothing else is mapped."""

from __future__ import annotations

import mmap
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend_models import text_model
from frontend_mutants import mutate_bytes, seeds
from onnx import TensorProto, numpy_helper

from saccade.errors import ModelError, SaccadeError
from saccade.frontend import onnx as frontend
from saccade.frontend.onnx import read
from saccade.frontend.onnx.skeleton import OWN_FILE
from saccade.ir import Graph
from saccade.ir.printer import format_graph

RNG = np.random.default_rng(5)


def weighty(dtype: type = np.float32) -> onnx.ModelProto:
    """A model whose weights are large enough to stay where they are, and some that are not."""
    weights = {
        "w": RNG.standard_normal((24, 3, 5, 5)).astype(dtype),
        "b": RNG.standard_normal(24).astype(dtype),
        "v": RNG.standard_normal((40, 24, 3, 3)).astype(dtype),
    }
    kind = "float" if dtype is np.float32 else "float16"
    return text_model(
        "a = Conv(x, w, b) c = Relu(a) y = Conv(c, v)",
        f"{kind}[N, 3, H, W] x",
        f"{kind} y",
        weights=weights,
    )


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def assert_same(one: Graph, other: Graph) -> None:
    assert format_graph(one) == format_graph(other)
    pairs = list(zip(one.constants.values(), other.constants.values(), strict=True))
    assert pairs and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs
    )


def mapped(array: np.ndarray) -> bool:
    base: object = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return base is not None


@pytest.mark.parametrize("shift", range(4))
def test_the_graph_is_the_same_wherever_the_weights_lie(shift: int, tmp_path: Path) -> None:
    model = weighty()
    model.producer_name = "x" * shift  # moves all that follows
    path = saved(model, tmp_path)
    graph = frontend.load(path, mapped=True)
    assert_same(graph, frontend.load(path))
    large = [array for array in graph.constants.values() if array.nbytes >= 4096]
    assert len(large) == 2 and all(map(mapped, large))


def test_what_is_not_told_so_copies(tmp_path: Path) -> None:
    graph = frontend.load(saved(weighty(), tmp_path))
    assert not any(map(mapped, graph.constants.values()))


def test_only_kilobytes_are_parsed(tmp_path: Path) -> None:
    path = saved(weighty(), tmp_path)
    source = read.read(path, mapped=True)
    assert source.own is not None and source.proto.ByteSize() < 1500 < path.stat().st_size
    names = [t.name for t in source.proto.graph.initializer if t.external_data]
    assert names == ["w", "v"]


def test_halves_become_floats(tmp_path: Path) -> None:
    path = saved(weighty(np.float16), tmp_path)
    assert_same(frontend.load(path, mapped=True), frontend.load(path))


@pytest.mark.parametrize("field", ["float_data", "string", "bfloat16", "location"])
def test_weights_of_other_kinds_are_parsed(field: str, tmp_path: Path) -> None:
    model = weighty()
    tensor = model.graph.initializer[2]
    if field == "float_data":
        values = numpy_helper.to_array(tensor).ravel()
        tensor.ClearField("raw_data")
        tensor.float_data[:] = values
    elif field == "string":
        tensor.data_type = TensorProto.STRING
    elif field == "bfloat16":
        tensor.data_type = TensorProto.BFLOAT16
    else:
        tensor.data_location = TensorProto.DEFAULT
    path = saved(model, tmp_path)
    source = read.read(path, mapped=True)
    assert [t.name for t in source.proto.graph.initializer if t.external_data] == ["w"]
    same = problem(path, mapped=False)
    assert problem(path, mapped=True) == same
    assert (same is None) == (field in ("float_data", "location"))


def problem(path: Path, *, mapped: bool) -> str | None:
    try:
        frontend.load(path, mapped=mapped)
    except SaccadeError as error:
        return f"{type(error).__name__}: {error}"
    return None


def test_weights_that_do_not_fill_their_shape_are_refused_alike(tmp_path: Path) -> None:
    model = weighty()
    model.graph.initializer[0].dims[:] = (24, 3, 5, 6)
    path = saved(model, tmp_path)
    wanted = problem(path, mapped=False)
    assert wanted is not None and "takes 8640 bytes, has 7200" in wanted
    assert problem(path, mapped=True) == wanted


def test_a_file_cannot_name_places_in_itself(tmp_path: Path) -> None:
    """A file that has external data is parsed whole."""
    model = weighty()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", OWN_FILE), ("offset", "0"), ("length", "7200")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    path = saved(model, tmp_path)
    for own in (True, False):
        with pytest.raises(ModelError, match="only files in the model's own folder"):
            frontend.load(path, mapped=own)


def test_damaged_files_are_refused_alike(tmp_path: Path) -> None:
    whole = weighty().SerializeToString()
    path = tmp_path / "model.onnx"
    for size in (0, 1, 7, 100, 5000, len(whole) - 4000, len(whole) - 1):
        path.write_bytes(whole[:size])
        wanted = problem(path, mapped=False)
        assert wanted is not None and problem(path, mapped=True) == wanted
    missing = tmp_path / "none.onnx"
    assert problem(missing, mapped=True) == problem(missing, mapped=False) is not None


def test_mutants_give_the_same_graph_or_the_same_refusal(tmp_path: Path) -> None:
    dice = random.Random(11)
    path = tmp_path / "model.onnx"
    models = [weighty(), *seeds()]
    refused = 0
    for turn in range(150):
        path.write_bytes(mutate_bytes(models[turn % len(models)].SerializeToString(), dice))
        wanted = problem(path, mapped=False)
        assert problem(path, mapped=True) == wanted
        refused += wanted is not None
        if wanted is None:
            one, other = (frontend.load(path, mapped=own) for own in (True, False))
            assert format_graph(one) == format_graph(other)
    assert 20 < refused < 150
