"""What a model takes, refuses and gives."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from runtime_models import compiled, convolutions, image, model_of, tensor, two_inputs

from saccade import InputError, OptionError, TensorInfo


@pytest.fixture(scope="module")
def images():
    return compiled(convolutions(), threads=2)


@pytest.fixture(scope="module")
def sums():
    return compiled(two_inputs(), threads=1)


A, B = image(2, 4), image(2, 4) * 3
IDS = np.array([1, -2, 3])


def test_names_types_and_shapes(images, sums):
    assert images.inputs == (TensorInfo("x", "float32", ("N", 3, "H", "W")),)
    assert [o.name for o in sums.outputs] == ["y", "z", "n"]
    assert sums.inputs[2] == TensorInfo("ids", "int64", (3,))


def test_by_position_by_name_and_as_a_mapping(sums):
    for found in (sums(A, B, IDS), sums(A, ids=IDS, b=B), sums(ids=IDS, b=B, a=A)):
        assert isinstance(found, tuple)
        for got, wanted in zip(found, (A + B, A - B, IDS * 2), strict=True):
            assert np.array_equal(got, wanted) and got.dtype == wanted.dtype
    named = sums.run({"b": B, "a": A, "ids": IDS})
    assert list(named) == ["y", "z", "n"]
    assert np.array_equal(named["z"], A - B)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((A,), {}, "missing input.*: b, ids"),
        ((A, B, IDS, A), {}, "4 inputs given, the model has 3"),
        ((A, B), {"ids": IDS, "q": A}, "no input 'q'.* a, b, ids"),
        ((A, B, IDS), {"a": A}, "'a' is given twice"),
        ((A.astype(np.float64), B, IDS), {}, "'a' must be float32 .*given is float64"),
        ((A.astype(">f4"), B, IDS), {}, "'a' must be float32 .*given is >f4"),
        ((A, B, IDS.astype(np.int32)), {}, "'ids' must be int64 .*given is int32"),
        ((A[0], B, IDS), {}, "'a' must have shape Nx4, given is 4"),
        ((A[:, :3], B, IDS), {}, "'a' must have shape Nx4, given is 2x3"),
        ((A, B[:1], IDS), {}, "dim N of input 'b' is 1, elsewhere it is 2"),
        ((A.tolist(), B, IDS), {}, "'a' is a list, not an array"),
        ((None, B, IDS), {}, "'a' is a NoneType, not an array"),
        ((A, B, np.array([1, 2])), {}, "'ids' must have shape 3, given is 2"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(sums, args, kwargs, message):
    with pytest.raises(InputError, match=message):
        sums(*args, **kwargs)
    assert np.array_equal(sums(A, B, IDS)[0], A + B), "the model still works"


def layouts(x):
    wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan, np.float32)
    wide[..., ::2] = x
    raw = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    raw[...] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    return {
        "strided": wide[..., ::2],
        "Fortran": np.asfortranarray(x),
        "reversed": x[:, :, ::-1].copy()[:, :, ::-1],
        "channels last": np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
        "misaligned": raw,
        "read-only": frozen,
    }


@pytest.mark.parametrize("name", layouts(image(1, 1, 1, 2)))
def test_any_storage_is_taken_and_left_alone(images, name):
    x = image(2, 3, 9, 11)
    given = layouts(x)[name]
    assert np.array_equal(given, x)
    before = given.tobytes()
    assert np.array_equal(images(given), images(x))
    assert given.tobytes() == before


class Exchanged:
    """What another library's array looks like: DLPack and nothing else."""

    device = "cpu"

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_whatever_speaks_dlpack_is_taken(images):
    x = image(1, 3, 8, 8)
    assert np.array_equal(images(Exchanged(x)), images(x))
    elsewhere = Exchanged(x)
    elsewhere.device = "cuda:0"
    with pytest.raises(InputError, match=r"on cuda:0"):
        images(elsewhere)


def test_an_element_type_that_numpy_lacks_is_named(images):
    class Narrow(Exchanged):
        dtype = "bfloat16"

        def __dlpack__(self, **options):
            raise RuntimeError("Unsupported dtype in DLTensor.")

    with pytest.raises(InputError, match=r"must be float32 .* given is bfloat16"):
        images(Narrow(image(1, 3, 8, 8)))


def test_an_empty_batch_gives_empty_results(images):
    assert images(np.zeros((0, 3, 9, 9), np.float32)).shape == (0, 5, 9, 9)
    assert images(image(1, 3, 9, 9)).shape == (1, 5, 9, 9)


def test_results_belong_to_the_caller(images):
    x = image(1, 3, 8, 8)
    first = images(x)
    kept = first.copy()
    second = images(x * 2)
    assert first.flags.owndata or first.base is not second.base
    assert not np.shares_memory(first, second) and np.array_equal(first, kept)
    second[...] = np.nan
    assert np.array_equal(images(x), kept)


def test_scalars_are_arrays_without_axes():
    model = compiled(
        model_of(
            [helper.make_node("Add", ["s", "v"], ["y"])],
            [tensor("s", []), tensor("v", [3])],
            [tensor("y", [3])],
        )
    )
    v = image(3)
    assert np.array_equal(model(np.float32(2.0), v), v + 2)
    assert np.array_equal(model(np.array(2.0, np.float32), v), v + 2)


def test_an_input_may_be_a_result():
    model = compiled(
        model_of(
            [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["z"])],
            [tensor("x", ["N", 5])],
            [tensor("y", ["N", 5]), tensor("z", ["N", 5])],
        )
    )
    x = image(3, 5)
    y, z = model(x)
    assert np.array_equal(z, x) and np.array_equal(y, np.maximum(x, 0))
    assert not np.shares_memory(z, x)


@pytest.mark.parametrize(
    "options",
    [
        {"device": "gpu"}, {"precision": "fp8"}, {"threads": 0}, {"threads": 2.5},
        {"threads": 1025}, {"threads": True}, {"isa": "sse2"},
    ],
)  # fmt: skip
def test_senseless_options_are_refused(options):
    with pytest.raises(OptionError, match=str(next(iter(options)))):
        compiled(two_inputs(), **options)


def test_plans_are_made_for_shapes_without_running(images):
    plan = images.plan(x=(2, 3, 20, 30))
    assert plan.sizes == {"N": 2, "H": 20, "W": 30}
    assert plan.outputs[0].shape == (2, 5, 20, 30)
    assert images.plan((2, 3, 20, 30)) == plan
    for wrong in ((2, 3, 20), (2, 4, 20, 30)):
        with pytest.raises(InputError, match="'x'"):
            images.plan(wrong)


def test_bools_and_integers():
    model = compiled(
        model_of(
            [helper.make_node("And", ["a", "b"], ["y"])],
            [tensor("a", ["N"], TensorProto.BOOL), tensor("b", ["N"], TensorProto.BOOL)],
            [tensor("y", ["N"], TensorProto.BOOL)],
        )
    )
    a, b = np.array([True, True, False]), np.array([True, False, False])
    assert np.array_equal(model(a, b), a & b)
    assert model(a, b).dtype == np.bool_


def test_profile_has_every_phase(images):
    x = image(1, 3, 24, 24)
    found = images.profile(x, repeat=3)
    plan = images.plan(x.shape)
    assert [s.name for s in found.steps] == [s.name for s in plan.steps]
    assert [len(s.phases) for s in found.steps] == [len(s.phases) for s in plan.steps]
    assert found.total > 0 and all(s.microseconds > 0 and 0 <= s.busy <= 1 for s in found.steps)
    shares = found.shares
    assert abs(shares.working + shares.imbalance + shares.barriers - 1) < 1e-9
    assert [len(s) for s in found.spans] == [len(s.phases) for s in plan.steps]
    assert all(len(row) == 2 and all(a <= b for a, b in row) for s in found.spans for row in s)
    assert "µs" in str(found) and found.to_json() and found.to_chrome_trace()
    assert np.array_equal(images(x), images(x))
