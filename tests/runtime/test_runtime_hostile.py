"""Arguments that nobody should give a model: the right answer, or an error that names the input."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_models import compiled, convolutions, image, two_inputs

from saccade import InputError, OptionError
from saccade.errors import OutOfMemoryError


@pytest.fixture(scope="module")
def images():
    return compiled(convolutions(), threads=1)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


X = image(1, 3, 8, 8)


class Liar(np.ndarray):
    """Says that it is larger than it is."""

    shape = property(lambda _: (1, 3, 800, 800))
    strides = property(lambda _: (4, 4, 4, 4))
    ctypes = flags = None


class Offered:
    """An array behind `__array__`, and a shape that is not its own."""

    shape = (1, 3, 800, 800)

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class Exchanged:
    """DLPack, of any kind of device and content."""

    def __init__(self, content, kind=1):
        self.content, self.kind = content, kind

    def __dlpack__(self, **options):
        return self.content.__dlpack__(**options) if self.kind == 1 else self.content

    def __dlpack_device__(self):
        return self.kind, 0


def test_arrays_of_other_classes(images, tmp_path):
    wanted = images(X)
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=X.shape)
    mapped[...] = X
    arrays = (mapped, X.view(np.recarray), X.view(Liar), Offered(X), Offered(X.view(Liar)))
    for given in arrays:
        assert np.array_equal(images(given), wanted), type(given)
    one = np.broadcast_to(X[:, :1], X.shape)
    assert np.array_equal(images(one), images(one.copy()))


def test_a_broadcast_input_that_memory_does_not_hold(images):
    huge = np.broadcast_to(np.float32(0), (1, 3, 1 << 22, 1 << 22))
    with pytest.raises(OutOfMemoryError, match="has to be copied to 211106232532992 contiguous"):
        images(huge)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ma.masked_array(X, X > 0), r"'x' is a masked array.*\.filled\(value\)"),
        (np.ma.masked_array(X), r"'x' is a masked array"),
        (X.astype(object), "'x' must be float32 .*given is object"),
        (np.zeros(X.shape, [("a", "f4")]), r"'x' must be float32 .*given is \[\('a'"),
        (np.float32(1), "'x' must have shape .*given is scalar"),
        (np.str_("a"), "'x' must be float32"),
        (Offered(None), "'x' .*is Offered, which NumPy cannot read"),
        (Exchanged(X, 2), "'x' .*is Exchanged, which NumPy cannot read"),
        (Exchanged(3, 13), "'x' .*is Exchanged, which NumPy cannot read"),
        (7, "'x' is a int, not an array"),
    ],
)
def test_arrays_that_are_refused(images, given, message):
    with pytest.raises(InputError, match=message):
        images(given)


def test_inputs_by_name_are_a_mapping_of_names(images):
    for given in (None, [X], X, "x"):
        with pytest.raises(InputError, match="a mapping, inputs by name"):
            images.run(given)
    for name in (3, None, ("x",), b"x"):
        with pytest.raises(InputError, match="there is no input"):
            images.run({name: X})
    with pytest.raises(InputError, match="missing"):
        images.run({})


@pytest.mark.parametrize(
    "shape",
    [
        None, 5, "abc", "1388", X, (1.0, 3, 8, 8), (1, 3, None, 8), (1, 3, 8), (1, 3, -1, 2),
        (1, 3, 2**40, 2**40), (1, 3, 2**70, 1), (0, 3, 2**70, 1), (1, 3, float("nan"), 1), [[1]],
    ],
    ids=lambda shape: str(shape)[:16],
)  # fmt: skip
def test_shapes_that_are_none(images, shape):
    with pytest.raises(InputError, match="'x'"):
        images.plan(x=shape)


def test_shapes_of_any_integers(images):
    plan = images.plan((1, 3, 8, 9))
    for shape in ([1, 3, 8, 9], np.array([1, 3, 8, 9]), (np.int64(1), 3, np.uint8(8), 9)):
        assert images.plan(x=shape) == plan


@pytest.mark.parametrize("repeat", [0, -1, "x", None, 1.5, True, float("nan"), 2**40])
def test_repeats(images, repeat):
    with pytest.raises(OptionError, match="repeat must be an integer from 1"):
        images.profile(X, repeat=repeat)


@pytest.mark.parametrize("seconds", [-1, float("nan"), "x", True, 1j, [3]])
def test_seconds(images, seconds):
    with pytest.raises(OptionError, match="seconds must be a number"):
        images.tune(X, seconds=seconds)


def test_stages(images):
    for stage in (None, [], 3, "nonsense"):
        with pytest.raises(InputError, match="there is no stage"):
            images.graph(stage)


def test_negative_views_and_tensors_of_zeros(images, torch):
    x = torch.from_numpy(X)
    negative = torch.complex(x, -x).conj().imag
    assert negative.is_neg()
    assert np.array_equal(images(negative), images(X))
    zeros = images(torch._efficientzerotensor(X.shape))
    assert np.array_equal(zeros, images(np.zeros_like(X)))


def test_subclasses_of_tensors(images, torch):
    class Other(torch.Tensor):
        shape = property(lambda _: (1, 3, 800, 800))
        stride = detach = None

        def __dlpack__(self, **_options):
            return torch.zeros(9).__dlpack__()

    x = torch.from_numpy(X.copy())
    for given in (x.as_subclass(Other), torch.nn.Parameter(x), x.clone().requires_grad_()):
        found = images(given)
        assert np.array_equal(found, images(X)) and not found.requires_grad


@pytest.mark.filterwarnings("ignore")  # PyTorch's, that these are prototypes or go away
def test_tensors_without_elements_in_memory(images, torch):
    from torch._subclasses import FakeTensorMode  # noqa: PLC0415 - PyTorch is optional

    x = torch.from_numpy(X)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
    gone = x.clone()
    gone.untyped_storage().resize_(0)
    for given, message in (
        (fake, "'x' is a FakeTensor"), (x.to("meta"), "'x' is on meta"),
        (x.to_sparse(), "'x' is a torch.sparse_coo"), (x.to_mkldnn(), "'x' is a torch._mkldnn"),
        (torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "'x' .*qint8"),
        (torch.nested.nested_tensor([x[0]]), "'x' .*cannot read"), (gone, "'x' .*without memory"),
        (x.bfloat16(), "'x' must be float32 .*bfloat16"), (torch.complex(x, x).conj(), "'x' must"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            images(given)
    with pytest.raises(InputError, match="'x'"):
        torch.func.vmap(images)(x[None])


def test_each_input_is_named():
    model = compiled(two_inputs(), threads=1)
    a, ids = image(2, 4), np.array([1, 2, 3])
    with pytest.raises(InputError, match="'b' is a masked array"):
        model(a, np.ma.masked_array(a), ids)
    with pytest.raises(InputError, match="'ids' needs a shape"):
        model.plan((2, 4), (2, 4), None)
