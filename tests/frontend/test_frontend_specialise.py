"""Input shapes that the user chose, before anything of the file is refused."""

from __future__ import annotations

import pickle

import numpy as np
import onnx
import pytest
from frontend_models import run_onnxruntime, text_model
from onnx import numpy_helper

import saccade
from saccade.errors import InputError, ModelError, OptionError, PlanError, UnsupportedModelError
from saccade.frontend.onnx.specialise import FixedByFileError

RNG = np.random.default_rng(18)
WEIGHTS = {"w": RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)}
CONV = "a = Conv<pads=[1, 1, 1, 1]>(x, w)  y = Relu(a)"
FC = {"f": RNG.normal(size=(64, 5)).astype(np.float32)}


def fixed(body=CONV, shape="1, 3, 8, 8", **more):
    return text_model(body, f"float[{shape}] x", weights={**WEIGHTS, **more})


def redeclared(model, shape):
    """The file as an exporter writes it for another shape."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for dim, size in zip(copy.graph.input[0].type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = size
    return copy


def compiled(model, shapes, **options):
    return saccade.compile(model, shapes=shapes, threads=1, **options)


def image(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def assert_close(actual, expected):
    assert actual.shape == expected.shape
    assert np.linalg.norm(actual - expected) <= 1e-5 * np.linalg.norm(expected)


def shape_of(model):
    return model.inputs[0].shape


@pytest.mark.parametrize(
    "shape", [(2, 3, 8, 8), (1, 3, 5, 12), ("N", 3, "H", "W"), (None, 3, 8, None)]
)
def test_sizes_that_a_file_fixes_become_others(shape):
    model = compiled(fixed(), {"x": shape})
    sizes = [axis if isinstance(axis, int) else 7 + place for place, axis in enumerate(shape)]
    x = image(*sizes)
    assert_close(model(x), run_onnxruntime(redeclared(fixed(), sizes), {"x": x})["y"])


def test_sizes_that_a_file_leaves_open_become_numbers():
    model = compiled(text_model(CONV, weights=WEIGHTS), {"x": (1, 3, 6, "W")})
    assert shape_of(model) == (1, 3, 6, "W")
    assert model.outputs[0].shape == (1, 4, 6, "W")
    with pytest.raises(InputError, match=r"must have shape 1x3x6xW, given .*: shapes= of"):
        model(image(2, 3, 6, 6))


def test_what_has_no_name_varies_by_itself():
    model = compiled(fixed(), {"x": (-1, 3, "?", None)})
    assert shape_of(model) == ("x_dim_0", 3, "x_dim_2", "x_dim_3")
    assert model(image(2, 3, 4, 9)).shape == (2, 4, 4, 9)
    square = compiled(fixed(), {"x": (1, 3, "S", "S")})
    with pytest.raises(InputError, match="dim S of input 'x' is 9, elsewhere it is 4"):
        square(image(1, 3, 4, 9))


@pytest.mark.parametrize("label", ["?", "-1"])
def test_open_axes_of_files_vary_by_themselves(label):
    model = text_model("y = Relu(x)", "float[A, A] x")
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_param = label
    assert saccade.compile(model, threads=1)(image(2, 3)).shape == (2, 3)


def test_an_axis_without_a_name_is_not_one_that_is_called_like_its_place():
    model = text_model(
        "y = Relu(x)  z = Relu(v)", "float[Q] x, float[x_dim_0] v", "float y, float z"
    )
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    y, z = saccade.compile(model, threads=1)(image(2), image(3))
    assert (y.shape, z.shape) == ((2,), (3,))


def test_a_rank_that_the_file_does_not_know():
    model = text_model(CONV, "float x", weights=WEIGHTS)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedModelError, match=r"how many axes .* say its shape: --shape"):
        saccade.compile(model, threads=1)
    x = image(1, 3, 4, 4)
    assert_close(compiled(model, {"x": (1, 3, "H", 4)})(x), run_onnxruntime(model, {"x": x})["y"])


def test_one_size_where_no_other_would_do():
    """None of the sizes that are tried for open axes fits; the user's does."""
    body = "s = Constant<value_ints=[2, 77]>()  r = Reshape(x, s)  y = Relu(r)"
    model = text_model(body, "float[A, B] x")
    assert compiled(model, {"x": (11, 14)})(image(11, 14)).shape == (2, 77)


def test_a_name_of_the_file_is_one_size_in_all_inputs():
    model = text_model("y = Add(x, v)", "float[N, 3] x, float[N, 1] v")
    assert [i.shape for i in compiled(model, {"x": (4, 3)}).inputs] == [(4, 3), (4, 1)]
    assert [i.shape for i in compiled(model, {"x": ("B", 3)}).inputs] == [("B", 3), ("B", 1)]
    assert [i.shape for i in compiled(model, {"x": ("B", 3), "v": ("B", 1)}).inputs][1] == ("B", 1)
    with pytest.raises(InputError, match=r"dim N of input 'v' is 5, elsewhere it is 4: shapes= of"):
        compiled(model, None)(image(4, 3), image(5, 1))
    with pytest.raises(FixedByFileError, match="dims 4 and 5 do not broadcast"):
        compiled(model, {"x": (4, 3), "v": (5, 1)})


def test_inputs_that_a_file_calls_alike_may_be_given_numbers_that_differ():
    """As an exporter's names have it, which no other engine asks about."""
    text = "y = Relu(x)  z = Relu(v)  u = Relu(t)"
    inputs, outputs = "float[N, 3] x, float[N] v, float[N] t", "float[N, 3] y, float z, float u"
    model = text_model(text, inputs, outputs)
    both = compiled(model, {"x": (4, 3), "v": (5,)})
    assert [i.shape for i in both.inputs] == [(4, 3), (5,), ("N",)]
    y, z, u = both(image(4, 3), image(5), image(6))
    assert (y.shape, z.shape, u.shape) == ((4, 3), (5,), (6,))


BODY = (
    "a = Conv<pads=[1, 1, 1, 1]>(x, w)  s = Constant<value_ints=[1, {}]>()"
    "p = AveragePool<kernel_shape=[2, 2], strides=[2, 2]>(a)  r = Reshape(p, s)  y = MatMul(r, f)"
)


@pytest.mark.parametrize("target", ["-1", "64"])
def test_a_batch_that_a_reshape_writes_out(target):
    """Never the answer of images that were mixed: an error, or the answer of the right export."""
    model, x = fixed(BODY.format(target), f=FC["f"]), image(2, 3, 8, 8)
    for shape in ((2, 3, 8, 8), ("N", 3, 8, 8), (None, 3, 8, 8)):
        with pytest.raises((ModelError, PlanError, InputError), match=r"[Rr]eshape|does not fit"):
            compiled(model, {"x": shape})(x)
    # Spelled so that the batch is free, the same network runs, and is that of the export.
    right = fixed(BODY.format(target).replace("ints=[1, ", "ints=[0, "), f=FC["f"])
    expected = run_onnxruntime(redeclared(right, x.shape), {"x": x})["y"]
    assert_close(compiled(right, {"x": ("N", 3, 8, 8)})(x), expected)


def test_a_reshape_that_would_mix_images_is_named():
    body = "s = Constant<value_ints=[1, -1]>()  r = Reshape(x, s)  y = Softmax<axis=-1>(r)"
    message = r"Reshape 'r' to \[1, -1\] was written for the file's own input shape \(x_dim_0=1\)"
    with pytest.raises(ModelError, match=message):
        compiled(fixed(body), {"x": (2, 3, 8, 8)})
    # The batch stays, and the rest may be of any size: nothing is mixed.
    x = image(1, 3, 4, 6)
    expected = run_onnxruntime(redeclared(fixed(body), x.shape), {"x": x})["y"]
    assert_close(compiled(fixed(body), {"x": (1, 3, "H", "W")})(x), expected)


@pytest.mark.parametrize(
    ("node", "body"),
    [
        ("Resize", "s = Constant<value_ints=[1, 3, 16, 16]>()  y = Resize(x, e, e, s)"),
        ("Slice", "y = Slice(x, a, b, a)"),
        ("Split", "y = Split<axis=0>(x, b)"),
        ("Squeeze", "y = Squeeze(x, a)"),
    ],
)
def test_a_batch_that_other_nodes_write_out(node, body):
    """Where they would drop images, or blend them, it is an error."""
    head = "a = Constant<value_ints=[0]>()  b = Constant<value_ints=[1]>()"
    model = fixed(head + body, e=np.zeros(0, np.float32))
    assert saccade.compile(model, threads=1)(image(1, 3, 8, 8)).size
    for shape in ((2, 3, 8, 8), ("N", 3, 8, 8)):
        with pytest.raises(ModelError, match=node) as caught:
            compiled(model, {"x": shape})(image(2, 3, 8, 8))
        assert "\n" not in str(caught.value) or isinstance(caught.value, UnsupportedModelError)


@pytest.mark.parametrize(
    "body",
    [
        "y = Add(x, c)",
        "r = Relu(x)  y = Mul(c, r)",
        "y = Concat<axis=1>(x, c)",
        "y = PRelu(x, c)",
        "a = Conv<pads=[1, 1, 1, 1]>(x, w)  y = Add(a, d)",
        "f = Flatten(x)  y = MatMul(f, m)",
        "f = Flatten(x)  y = Gemm(f, m, b)",
        "f = Flatten(x)  y = Gemm<transB=1>(f, t, b)",
        "f = Flatten(x)  y = MatMul(f, one)",
        "p = Transpose<perm=[0, 1, 3, 2]>(x)  y = MatMul(p, h)",
    ],
)
def test_sizes_that_weights_fix_hold_for_no_others(body):
    """Symbols cannot tell, so each size is asked: a kernel would read beside the weights."""
    more = {
        "c": image(1, 3, 8, 8), "d": image(1, 4, 8, 8), "m": image(192, 5), "b": image(5),
        "t": image(5, 192), "one": image(192, 1), "h": image(8, 5),
    }  # fmt: skip
    model, x = fixed(body, **more), image(1, 3, 8, 8)
    opened = compiled(model, {"x": (1, 3, "H", "W")})
    assert_close(opened(x), run_onnxruntime(model, {"x": x})["y"])
    for size in (4, 9):
        with pytest.raises(PlanError, match=f"with H={size}, W={size}, node '.*' .*does not fit"):
            opened(image(1, 3, size, size))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("f = Flatten(x)  y = MatMul(f, m)", "node 'y': MatMul: the summed dim is 48 on one side"),
        ("y = Add(x, c)", "node 'y': Pointwise: dims 4 and 8 do not broadcast"),
        (
            "s = Constant<value_ints=[1, 192]>()  y = Reshape(x, s)",
            r"Reshape 'y': reshapes \[1, 3, 4, 4\] to \[1, 192\]",
        ),
    ],
)
def test_sizes_that_a_file_fixes_inside_are_named(body, problem):
    model = fixed(body, c=image(1, 3, 8, 8), m=image(192, 5))
    way = r": this was written for the file's own input shape \(x 1x3x8x8\): .*export the model"
    with pytest.raises(ModelError, match=problem + ".*" + way):
        compiled(model, {"x": (1, 3, 4, 4)})
    # What contradicts itself was written for no shape.
    wrong = fixed("y = Add(x, c)", c=image(1, 3, 7, 8))
    with pytest.raises(ModelError, match=r"dims [48] and 7 do not broadcast$"):
        compiled(wrong, {"x": (1, 3, 4, 8)})


def test_sizes_that_are_not_the_files_may_be_written_out():
    """A part of an axis, a fixed result: the same for all sizes of the input."""
    body = (
        "a = Constant<value_ints=[0]>()  b = Constant<value_ints=[4]>()"
        "  c = Constant<value_ints=[2]>()  d = Slice(x, a, b, c)  y = Relu(d)"
    )
    x = image(2, 3, 6, 5)
    expected = run_onnxruntime(redeclared(fixed(body), x.shape), {"x": x})["y"]
    assert_close(compiled(fixed(body), {"x": ("N", 3, "H", "W")})(x), expected)


def test_a_size_in_the_middle_that_a_reshape_writes_out():
    body = "s = Constant<value_ints=[1, -1, 4, 8]>()  r = Reshape(x, s)  y = Relu(r)"
    with pytest.raises(ModelError, match=r"written for .* \(H=8, W=8\)"):
        compiled(fixed(body), {"x": (1, 3, "H", "W")})


@pytest.mark.parametrize(
    ("shapes", "error", "message"),
    [
        ({"q": (1,)}, InputError, "there is no input 'q'; the model has x"),
        ({"x": (1, 3)}, InputError, "input 'x' has 4 axes in the file, given are 2"),
        ({"x": ()}, InputError, "given are 0"),
        ({"x": (0, 3, 8, 8)}, OptionError, "cannot have a size of 0"),
        ({"x": (-2, 3, 8, 8)}, OptionError, "cannot have a size of -2"),
        ({"x": (True, 3, 8, 8)}, OptionError, "cannot have a size of True"),
        ({"x": (1.0, 3, 8, 8)}, OptionError, "cannot have a size of 1.0"),
        ({"x": (1 << 60, 3, 8, 8)}, OptionError, "cannot have a size of"),
        ({"x": ("a b", 3, 8, 8)}, OptionError, "a name is letters"),
        ({"x": "1x3x8x8"}, OptionError, "needs a tuple of sizes, given is '1x3x8x8'"),
        ({"x": 3}, OptionError, "needs a tuple of sizes, given is 3"),
        ({"x": (1,) * 65}, OptionError, "cannot have 65 axes"),
        ({3: (1,)}, OptionError, "names an input 3"),
        ([("x", (1,))], OptionError, "must be a mapping"),
        (7, OptionError, "must be a mapping"),
    ],
)  # fmt: skip
def test_shapes_that_make_no_sense(shapes, error, message):
    with pytest.raises(error, match=message) as caught:
        compiled(fixed(), shapes)
    assert "\n" not in str(caught.value)


def test_an_input_that_is_no_tensor_has_no_shape():
    model = text_model("z = Constant<value_int=0>()  y = SequenceAt(x, z)", "seq(float[2]) x")
    with pytest.raises(InputError, match="is no tensor and has no shape"):
        compiled(model, {"x": (2,)})


def test_initializers_that_are_listed_as_inputs_are_none():
    model = text_model("y = Add(x, c)", "float[2] x, float[2] c")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "c"))
    with pytest.raises(InputError, match="there is no input 'c'; the model has x"):
        compiled(model, {"c": (2,)})


def test_caches_do_not_mix_shapes_up(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(fixed(), path)
    for shape in ((1, 3, 8, 8), ("N", 3, "H", "W"), (2, 3, 4, 4), ("M", 3, "H", "W")):
        for _ in range(2):  # from the file, and from what that left
            model = compiled(path, {"x": shape})
            assert shape_of(model) == shape
            sizes = [axis if isinstance(axis, int) else 8 for axis in shape]
            model.warm({"x": sizes})
    assert shape_of(saccade.compile(path, threads=1)) == (1, 3, 8, 8)
    order = {"v": (1, 3), "x": (2, 3)}
    two = text_model("y = Add(x, v)", "float[N, 3] x, float[M, 3] v")
    assert compiled(two, order).inputs == compiled(two, dict(reversed(order.items()))).inputs


def test_models_pickle_with_their_shapes(tmp_path):
    onnx.save(fixed(), tmp_path / "m.onnx")
    shapes = {"x": [2, 3, "H", "W"]}
    model = compiled(tmp_path / "m.onnx", shapes)
    shapes["x"][0] = 5  # the caller's own
    assert shape_of(pickle.loads(pickle.dumps(model))) == (2, 3, "H", "W")


def test_bundles_hold_them_and_take_none(tmp_path):
    model, x = compiled(fixed(), {"x": (2, 3, "H", 8)}), image(2, 3, 4, 8)
    model.save(tmp_path / "m.saccade", {"x": x.shape})
    loaded = saccade.compile(tmp_path / "m.saccade")
    assert shape_of(loaded) == (2, 3, 4, 8)
    np.testing.assert_array_equal(loaded(x), model(x))
    with pytest.raises(OptionError, match="holds programs for x=2x3x4x8 alone"):
        compiled(tmp_path / "m.saccade", {"x": (1, 3, 8, 8)})


def test_models_of_values_take_them():
    body = "y = ReduceSum<keepdims=0>(x, axes)"
    model = compiled(
        text_model(body, "float[1, 3, 5] x, int64[k] axes", opset=18), {"x": (2, 3, "W")}
    )
    assert shape_of(model) == (2, 3, "W")
    x = image(2, 3, 7)
    np.testing.assert_allclose(model(x, np.array([0])), x.sum(0), rtol=1e-5)
    with pytest.raises(InputError):
        model(image(1, 3, 7), np.array([0]))
