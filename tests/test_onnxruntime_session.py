"""`saccade.onnxruntime` beside the real one: what scripts see of a session, and what it answers."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import saccade
from saccade import onnxruntime as ours
from saccade.errors import InputError


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    kinds = (
        ("x", TensorProto.FLOAT, ["N", 4]),
        ("n", TensorProto.INT64, [1]),
        ("b", TensorProto.BOOL, []),
    )
    outputs = (
        ("y", TensorProto.FLOAT, ["N", 4]),
        ("z", TensorProto.INT64, [1]),
        ("h", TensorProto.FLOAT16, ["N", 4]),
    )
    graph = helper.make_graph(
        [
            helper.make_node("Exp", ["x"], ["e"]),
            helper.make_node("Where", ["b", "e", "x"], ["y"]),
            helper.make_node("Add", ["n", "n"], ["z"]),
            helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        ],
        "g",
        [helper.make_tensor_value_info(*one) for one in kinds],
        [helper.make_tensor_value_info(*one) for one in outputs],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="us"
    )
    model.ir_version = 8
    model.model_version, model.doc_string = 7, "words"
    helper.set_model_props(model, {"character": "abc", "k": "v"})
    path = tmp_path_factory.mktemp("session") / "m.onnx"
    onnx.save(model, path)
    return str(path)


FEED = {
    "x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    "n": np.array([4]),
    "b": np.array(True),
}


META = (
    "producer_name", "graph_name", "domain", "description", "version", "custom_metadata_map",
)  # fmt: skip


def described(session):
    ends = [*session.get_inputs(), *session.get_outputs()]
    meta = session.get_modelmeta()
    return (
        [(one.name, one.type, list(one.shape)) for one in ends], session.get_providers(),
        [getattr(meta, name) for name in META],
    )  # fmt: skip


@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_session_says_and_answers_what_onnx_runtime_s_does(path, as_bytes):
    source = Path(path).read_bytes() if as_bytes else path
    kind = {"providers": ["CPUExecutionProvider"]}
    session, theirs = (
        ours.InferenceSession(source, **kind),
        onnxruntime.InferenceSession(source, **kind),
    )
    assert described(session) == described(theirs)
    for names in (None, [], ["z"], ["h", "y"]):
        found, wanted = session.run(names, FEED), theirs.run(names, FEED)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-3)


def test_what_numpy_makes_an_array_of_is_taken(path):
    session = saccade.InferenceSession(path)
    (y,) = session.run(["y"], {"x": [[0, 1, 2, 3]], "n": [1], "b": False})
    np.testing.assert_array_equal(y, [[0, 1, 2, 3]])


def test_wrong_names_are_told(path):
    session = saccade.InferenceSession(path)
    with pytest.raises(InputError, match="no output 'q'; there are y, z, h"):
        session.run(["q"], FEED)
    with pytest.raises(InputError, match="there is no input 'w'"):
        session.run(None, {**FEED, "w": np.zeros(1)})
    with pytest.raises(InputError, match="missing"):
        session.run(None, {"x": FEED["x"]})


def test_options_are_accepted_and_those_without_a_meaning_told(path, caplog):
    options = ours.SessionOptions()
    with caplog.at_level(logging.WARNING, "saccade"):
        options.log_severity_level = 4
        options.enable_cpu_mem_arena = False
        options.graph_optimization_level = ours.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.execution_mode = ours.ExecutionMode.ORT_SEQUENTIAL
        options.intra_op_num_threads = 3
        assert not caplog.records
        options.enable_profiling = True
        options.add_session_config_entry("session.disable_prepacking", "1")
    assert [record.name for record in caplog.records] == ["saccade"] * 2
    assert "enable_profiling has no meaning" in caplog.text and "prepacking=1" in caplog.text
    session = ours.InferenceSession(path, options, provider_options=[{}], enable_fallback=True)
    assert session._model.plan(x=(2, 4), n=(1,), b=()).threads == 3
    assert session.get_session_options() is options
    session.run(None, FEED, ours.RunOptions())


@pytest.mark.parametrize(
    "first", ["CUDAExecutionProvider", ("CUDAExecutionProvider", {"device_id": 0})]
)
def test_without_a_gpu_the_cpu_is_used_and_a_warning_says_so(path, first, caplog, monkeypatch):
    made = ours.compile_model

    def without_gpu(source, *, device="cpu", **options):
        if device == "cuda":
            raise saccade.OptionError("device cuda needs an NVIDIA GPU")
        return made(source, device=device, **options)

    monkeypatch.setattr(ours, "compile_model", without_gpu)
    with caplog.at_level(logging.WARNING, "saccade"):
        session = ours.InferenceSession(path, providers=[first, "CPUExecutionProvider"])
    assert "no GPU is used: device cuda needs" in caplog.text
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.run(["z"], FEED)[0].tolist() == [8]


def test_options_of_saccade_go_through(path):
    with pytest.raises(saccade.OptionError, match="is threads meant"):
        ours.InferenceSession(path, thread=2)
    assert "CPUExecutionProvider" in ours.get_available_providers() and ours.get_device() == "CPU"


def test_a_model_says_what_it_takes_and_gives(path):
    text = repr(saccade.compile(path))
    assert text == (
        "<saccade.Model: x float32[Nx4], n int64[1], b bool[scalar] -> "
        "y float32[Nx4], z int64[1], h float16[Nx4]>"
    )


@pytest.mark.parametrize("as_bytes", [False, True])
def test_models_pickle_by_their_source(path, as_bytes):
    source = Path(path).read_bytes() if as_bytes else path
    model = saccade.compile(source, threads=3)
    again = pickle.loads(pickle.dumps(model))
    assert repr(again) == repr(model) and again.plan(x=(2, 4), n=(1,), b=()).threads == 3
    for name, result in model.run(FEED).items():
        np.testing.assert_array_equal(again.run(FEED)[name], result)
    assert len(pickle.dumps(saccade.compile(path))) < 1000


def test_free_sizes_are_fixed_by_name(tmp_path):
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[A, 3, ?] x, float[A, N, 4] v)'
        " => (float[c, 3, d] y, float[c, N, 4] w) { y = Relu(x)  w = Relu(v) }"
    )
    model = onnx.parser.parse_model(text)
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = "a.b"
    onnx.save(model, tmp_path / "m.onnx")
    options = ours.SessionOptions()
    options.add_free_dimension_override_by_name("a.b", 2)
    for source in (tmp_path / "m.onnx", model.SerializeToString()):
        session = ours.InferenceSession(source, options)
        assert [one.shape for one in session.get_inputs()] == [[2, 3, "x_dim_2"], [2, "N", 4]]
    # It is of this session's options alone.
    other = ours.InferenceSession(tmp_path / "m.onnx")
    assert other.get_inputs()[0].shape[0] == "a_b"


def test_sessions_take_shapes(tmp_path):
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[1] x) => (float[1] y) { y = Relu(x) }'
    data = onnx.parser.parse_model(text).SerializeToString()
    session = ours.InferenceSession(data, shapes={"x": ("N",)})
    assert session.run(None, {"x": np.ones(3, np.float32)})[0].shape == (3,)
