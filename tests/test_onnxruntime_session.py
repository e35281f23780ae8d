"""`saccade.onnxruntime` beside the real one: what scripts see of a session, and what it answers."""

from __future__ import annotations

import logging
import pickle
import re
from pathlib import Path
from threading import Event

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import saccade
from saccade import onnxruntime as ours
from saccade.errors import DeviceError, InputError, OptionError
from saccade.onnxruntime import providers, session
from saccade.signature import shape_text


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
        options.enable_profiling = False  # as it is anyway
        assert not caplog.records
        options.enable_profiling = True
        options.add_session_config_entry("session.disable_prepacking", "1")
        run_options = ours.RunOptions()
        run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert [record.name for record in caplog.records] == ["saccade"] * 3
    assert options.get_session_config_entry("session.disable_prepacking") == "1"
    assert run_options.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    with pytest.raises(OptionError, match="no entry 'q'"):
        options.get_session_config_entry("q")
    assert "enable_profiling has no meaning" in caplog.text and "prepacking=1" in caplog.text
    session = ours.InferenceSession(path, options, provider_options=[{}], enable_fallback=True)
    assert session._model.plan(x=(2, 4), n=(1,), b=()).threads == 3
    assert session.get_session_options() is options
    session.run(None, FEED, run_options)
    assert session.end_profiling() == ""


@pytest.mark.parametrize(
    "first", ["CUDAExecutionProvider", ("CUDAExecutionProvider", {"device_id": 0})]
)
def test_without_a_gpu_the_cpu_is_used_and_a_warning_says_so(path, first, caplog, monkeypatch):
    made = session.compile_model

    def without_gpu(source, *, device="cpu", **options):
        if device == "cuda":
            raise saccade.OptionError("device cuda needs an NVIDIA GPU")
        return made(source, device=device, **options)

    monkeypatch.setattr(session, "compile_model", without_gpu)
    with caplog.at_level(logging.WARNING, "saccade"):
        made_here = ours.InferenceSession(path, providers=[first, "CPUExecutionProvider"])
    assert [record.message for record in caplog.records] == [
        "no GPU is used: device cuda needs an NVIDIA GPU"
    ]
    assert made_here.get_providers() == ["CPUExecutionProvider"]
    assert made_here.run(["z"], FEED)[0].tolist() == [8]


def test_options_of_saccade_go_through(path):
    with pytest.raises(saccade.OptionError, match="is threads meant"):
        ours.InferenceSession(path, thread=2)


def test_a_model_says_what_it_takes_and_gives(path):
    text = repr(saccade.compile(path))
    assert text == (
        "<saccade.Model: x float32[Nx4], n int64[1], b bool[scalar] -> "
        "y float32[Nx4], z int64[1], h float16[Nx4]>"
    )


def test_sizes_without_a_name_and_long_names_read_well():
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[?, 3, H, ?] x, float[batch, 4] v)'
        " => (float[?, c, H, d] y, float[e, 4] w) {"
        " y = MaxPool<kernel_shape = [2, 2], strides = [2, 2], pads = [1, 1, 0, 0]>(x)"
        "  w = Relu(v) }"
    )
    assert repr(saccade.compile(onnx.parser.parse_model(text))) == (
        "<saccade.Model: x float32[?x3xHx?], v float32[batch x 4] -> "
        "y float32[? x 3 x ((H+1)//2) x ?], w float32[batch x 4]>"
    )
    assert shape_text(("x", 3)) == "x x 3" and shape_text(()) == "scalar"


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
        assert [one.shape for one in session.get_inputs()] == [[2, 3, None], [2, "N", 4]]
    # It is of this session's options alone.
    other = ours.InferenceSession(tmp_path / "m.onnx")
    assert other.get_inputs()[0].shape[0] == "a_b"


def test_sessions_take_shapes(tmp_path):
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[1] x) => (float[1] y) { y = Relu(x) }'
    data = onnx.parser.parse_model(text).SerializeToString()
    session = ours.InferenceSession(data, shapes={"x": ("N",)})
    assert session.run(None, {"x": np.ones(3, np.float32)})[0].shape == (3,)


CPU = ["CPUExecutionProvider"]


def relu(signature, **denoted):
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g {signature} {{ y = Relu(x) }}'
    )
    for axis, kind in denoted.items():
        model.graph.input[0].type.tensor_type.shape.dim[int(axis[-1])].denotation = kind
    return model.SerializeToString()


def test_sizes_without_a_name_have_none():
    data = relu("(float[?, 3, H, ?] x) => (float[?, 3, H, ?] y)")
    shapes = [
        [one.shape for one in (*made.get_inputs(), *made.get_outputs())]
        for made in (ours.InferenceSession(data), onnxruntime.InferenceSession(data))
    ]
    assert shapes[0] == shapes[1] == [[None, 3, "H", None]] * 2


def test_free_sizes_are_fixed_by_denotation():
    data = relu("(float[A, 3, H] x) => (float[A, 3, H] y)", axis0="DATA_BATCH")
    shapes = []
    for module in (ours, onnxruntime):
        options = module.SessionOptions()
        options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
        options.add_free_dimension_override_by_denotation("DATA_CHANNEL", 7)
        made = module.InferenceSession(data, options, providers=CPU)
        shapes.append(made.get_inputs()[0].shape)
    assert shapes[0] == shapes[1] == [2, 3, "H"]


@pytest.mark.parametrize("kind", ["SessionOptions", "RunOptions"])
def test_defaults_are_onnx_runtime_s(kind):
    mine, theirs = getattr(ours, kind)(), getattr(onnxruntime, kind)()
    values = {
        name: getattr(theirs, name)
        for name in dir(theirs)
        if name[0] != "_" and not callable(getattr(theirs, name))
    }
    values.pop("execution_order", None)  # which the oldest version here does not have
    assert {name: getattr(mine, name) for name in values} == {
        name: getattr(ours, type(value).__name__)(int(value)) if hasattr(value, "name") else value
        for name, value in values.items()
    }


def test_what_would_change_answers_is_refused():
    options = ours.SessionOptions()
    with pytest.raises(OptionError, match="put 'w' into the file"):
        options.add_initializer("w", ours.OrtValue.ortvalue_from_numpy(np.zeros(1)))
    with pytest.raises(OptionError, match=r"mine\.so is code for ONNX Runtime"):
        options.register_custom_ops_library("mine.so")


@pytest.mark.parametrize("there", [False, True])
def test_a_gpu_is_available_where_there_is_one(there, monkeypatch):
    class Gpu:
        def facts(self):
            if not there:
                raise DeviceError("none")
            return {}

    monkeypatch.setattr(providers, "device_named", lambda name: Gpu())
    found = ["CUDAExecutionProvider"] if there else []
    assert ours.get_available_providers() == [*found, "CPUExecutionProvider"]
    assert ours.get_device() == ("GPU" if there else "CPU")


@pytest.mark.parametrize(
    "names", [["FooProvider"], ["OpenVINOExecutionProvider"], ["DmlExecutionProvider", *CPU]]
)
def test_other_providers_are_told_as_onnx_runtime_tells_them(path, names, caplog):
    with pytest.warns(UserWarning, match=names[0]):
        theirs = onnxruntime.InferenceSession(path, providers=names)
    with caplog.at_level(logging.WARNING, "saccade"):
        mine = ours.InferenceSession(path, providers=names)
    assert f"provider {names[0]} is not used" in caplog.text
    assert mine.get_providers() == theirs.get_providers() == CPU
    assert mine.get_provider_options() == theirs.get_provider_options()
    assert set(onnxruntime.get_all_providers()) <= set(ours.get_all_providers())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (([3],), "a provider is a name, or a name and a dict, not 3"),
        (([("CPUExecutionProvider",)],), "a name and a dict"),
        (("CPUExecutionProvider",), "providers must be a list"),
        ((CPU, []), "0 provider_options for 1 providers"),
        ((CPU, [3]), "a name and a dict"),
    ],
)
def test_providers_of_another_form_are_refused(path, given, problem):
    with pytest.raises(OptionError, match=re.escape(problem)):
        ours.InferenceSession(path, None, *given)
    # To whom a string is a list of letters, of which each is no provider: he warns.
    with pytest.raises((ValueError, UserWarning), match="rovider"):
        onnxruntime.InferenceSession(path, None, *given, enable_fallback=0)


def test_providers_may_change_but_to_none_that_is_unknown(path, caplog):
    made = ours.InferenceSession(path)
    with caplog.at_level(logging.WARNING, "saccade"):
        made.set_providers([("CPUExecutionProvider", {"arena": 1}), *CPU])
    assert "CPUExecutionProvider: arena=1 has no meaning" in caplog.text
    assert "given twice" in caplog.text
    assert made.get_provider_options() == {"CPUExecutionProvider": {"arena": "1"}}
    made.disable_fallback(), made.enable_fallback()
    with pytest.raises(OptionError, match="no provider 'FooProvider'"):
        made.set_providers(["FooProvider"])
    with pytest.raises(OptionError, match="no provider 'FooProvider'"):
        ours.InferenceSession(path, providers=["FooProvider"], enable_fallback=0)
    assert made.run(["z"], FEED)[0].tolist() == [8]


def values_of(module):
    """What a value says of itself, before and after what it is made of changes."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = module.OrtValue.ortvalue_from_numpy(array)
    array[0, 0] = 9
    value.update_inplace(2 * array)
    empty = module.OrtValue.ortvalue_from_shape_and_type([1, 2], np.float16)
    return (
        value.numpy().tolist(), array.tolist(), value.shape(), value.data_type(),
        value.element_type(), value.device_name(), value.tensor_size_in_bytes(),
        value.has_value(), value.is_tensor(), value.is_sparse_tensor(),
        value.is_tensor_sequence(), value.data_ptr() == array.ctypes.data,
        np.asarray(value).dtype, empty.shape(), empty.data_type(),
        module.OrtValue.ortvalue_from_shape_and_type([0], 7).data_type(),
    )  # fmt: skip


def test_values_are_onnx_runtime_s():
    assert values_of(ours) == values_of(onnxruntime)


def test_values_refuse_what_they_do_not_hold(caplog):
    for given in ([1, 2], np.array(["a"])):
        with pytest.raises(InputError, match="holds an array of numbers"):
            ours.OrtValue.ortvalue_from_numpy(given)
    value = ours.OrtValue.ortvalue_from_numpy(np.zeros((2, 2)))
    with pytest.raises(InputError, match=r"tensor\(double\) \[3\] does not fit into"):
        value.update_inplace(np.zeros(3))
    with caplog.at_level(logging.WARNING, "saccade"):
        there = ours.OrtValue.ortvalue_from_numpy(np.zeros(2), "cuda", 0)
    assert "device cuda has no meaning" in caplog.text and there.device_name() == "cpu"


def bound(module, path):
    """Results by each way of binding."""
    made = module.InferenceSession(path, providers=CPU)
    boxes = {name: module.OrtValue.ortvalue_from_numpy(array) for name, array in FEED.items()}
    found = [value.numpy() for value in made.run_with_ort_values(["z", "y"], boxes)]
    found += [value.numpy() for value in made.run_with_ort_values(None, boxes)]
    binding = made.io_binding()
    binding.bind_cpu_input("x", FEED["x"])
    binding.bind_ortvalue_input("b", boxes["b"])
    n = FEED["n"]
    binding.bind_input("n", "cpu", 0, np.int64, n.shape, n.ctypes.data)
    y = np.zeros((3, 4), np.float32)
    z = module.OrtValue.ortvalue_from_shape_and_type([1], np.int64)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    binding.bind_output("h")
    binding.bind_ortvalue_output("z", z)
    binding.synchronize_inputs()
    made.run_with_iobinding(binding, module.RunOptions())
    binding.synchronize_outputs()
    found += [y, z.numpy(), *binding.copy_outputs_to_cpu()]
    found += [value.numpy() for value in binding.get_outputs()]
    return found


def test_bound_runs_answer_what_onnx_runtime_s_do(path):
    for a, b in zip(bound(ours, path), bound(onnxruntime, path), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-3)


def test_bindings_refuse_what_does_not_fit(path, caplog):
    made = ours.InferenceSession(path)
    binding = made.io_binding()
    with pytest.raises(InputError, match="no input 'q'; there are x, n, b"):
        binding.bind_cpu_input("q", 0)
    with pytest.raises(InputError, match="no output 'q'; there are y, z, h"):
        binding.bind_output("q")
    with pytest.raises(OptionError, match="memory of device cuda"):
        binding.bind_input("x", "cuda", 0, np.float32, (3, 4), 4096)
    with pytest.raises(InputError, match="needs element_type"):
        binding.bind_output("y", buffer_ptr=4096)
    binding.clear_binding_outputs()
    with pytest.raises(InputError, match="no output is bound"):
        made.run_with_iobinding(binding)
    with pytest.raises(InputError, match="another session's"):
        ours.InferenceSession(path).run_with_iobinding(binding)
    with caplog.at_level(logging.WARNING, "saccade"):
        binding.bind_output("z", "cuda")
    assert "device cuda has no meaning" in caplog.text
    with pytest.raises(InputError, match="missing input"):
        made.run_with_iobinding(binding)
    for name, array in FEED.items():
        binding.bind_cpu_input(name, array)
    binding.bind_ortvalue_output("y", ours.OrtValue.ortvalue_from_numpy(np.zeros((3, 3), "f4")))
    with pytest.raises(InputError, match="does not fit into"):
        made.run_with_iobinding(binding)
    binding.clear_binding_inputs()
    assert not binding.feed


@pytest.mark.parametrize("module", [ours, onnxruntime])
def test_runs_call_back(path, module):
    made = module.InferenceSession(path, providers=CPU)
    answered: list[tuple[list[list[int]], str, bool]] = []
    done = Event()

    def take(results, data, problem):
        answered.append(([one.tolist() for one in results], data, not problem))
        done.set()

    for feed in (FEED, {**FEED, "x": np.zeros(3)}):
        done.clear()
        made.run_async(["z"], feed, take, "data")
        assert done.wait(60)
    assert answered == [([[8]], "data", True), ([], "data", False)]
    with pytest.raises(ValueError, match="missing"):
        made.run_async(["z"], {}, take, "data")


def test_the_module_sets_what_onnx_runtime_s_does(caplog):
    for module in (ours, onnxruntime):
        assert re.match(r"1\.[2-9]\d\.", module.__version__)
        module.set_default_logger_verbosity(0)
        module.preload_dlls()
        module.disable_telemetry_events()
        with pytest.raises((ValueError, RuntimeError), match="severity"):
            module.set_default_logger_severity(9)
    logger, before = logging.getLogger("saccade"), logging.getLogger("saccade").level
    try:
        ours.set_default_logger_severity(3)
        assert logger.level == logging.ERROR
        ours.set_default_logger_severity(2)
        ours.set_seed(3)
    finally:
        logger.setLevel(before)
    assert "set_seed(3) has no meaning" in caplog.text
