"""The caller's arrays on a fake GPU, whose memory DLPack calls the host's or a GPU's."""

import gc
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from cuda_programs import chain_program, chained, info, opened

from saccade.backends.cuda.runtime.array import DeviceArray
from saccade.backends.cuda.runtime.dlpack import imported, live_exports
from saccade.errors import InputError
from saccade.ir import DType
from saccade.signature import TensorInfo

GPU = (2, 0)


def tensor_info(shape, dtype="float32"):
    return TensorInfo("x", dtype, shape)


class Elsewhere:
    """An array on a GPU as far as it says."""

    def __init__(self, array, device):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device


def test_tensors_of_the_device_are_read_and_written_in_place():
    device, arrays = opened()
    program = chain_program(device, 64)
    x = torch.randn(64)
    taken = arrays.take(info(), x)
    assert taken.address == x.data_ptr()
    (result,) = program.run([taken])
    with device.driver.current():
        device.driver.synchronize()  # the CPU's tensors know no streams
    address = result.address
    (y,) = arrays.give([result], [x])
    assert isinstance(y, torch.Tensor) and y.data_ptr() == address
    np.testing.assert_array_equal(y.numpy(), chained(x.numpy()))


def test_memory_of_exported_results_comes_back_when_the_last_view_goes():
    device, arrays = opened()
    program = chain_program(device, 64)
    x = torch.randn(64)
    before = live_exports()
    (y,) = arrays.give(program.run([arrays.take(info(), x)]), [x])
    view, address = y[3:5], y.data_ptr()
    del y
    gc.collect()
    assert live_exports() == before + 1
    with device.driver.current():
        assert device.lease(256, device.stream()).block.address != address
    del view
    gc.collect()
    assert live_exports() == before
    with device.driver.current():
        found = [device.lease(256, device.stream()) for _ in range(3)]
    assert address in [lease.block.address for lease in found]


@pytest.mark.parametrize(
    "dtype", [one for one in DType if not one.is_narrow], ids=lambda d: d.value
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (2, 0, 4), (1, 1)])
def test_round_trips(dtype, shape):
    if dtype in (DType.U16, DType.U32, DType.U64) and not hasattr(torch, dtype.value):
        pytest.skip("PyTorch has no such type")
    _, arrays = opened()
    x = torch.randint(0, 2, shape).to(getattr(torch, dtype.value))
    taken = arrays.take(tensor_info(shape, dtype.value), x)
    assert (taken.shape, taken.kind, taken.dtype) == (shape, dtype, dtype.numpy)
    (y,) = arrays.give([taken], [x])
    assert y.dtype is x.dtype and y.shape == x.shape and torch.equal(y, x)


def test_other_libraries_get_and_give_device_arrays():
    device, arrays = opened()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    taken = arrays.take(tensor_info((2, 3)), x)
    (same,) = arrays.give([taken], [taken])
    assert same is taken and arrays.take(tensor_info((2, 3)), taken) is taken
    np.testing.assert_array_equal(np.asarray(taken), x)
    interface = taken.__cuda_array_interface__
    assert (interface["shape"], interface["typestr"], interface["version"]) == ((2, 3), "<f4", 3)
    assert interface["data"] == (taken.address, False) and interface["stream"] == taken.stream
    with device.driver.current():
        device.driver.synchronize()
    np.testing.assert_array_equal(np.from_dlpack(taken), x)
    with pytest.raises(BufferError):
        taken.__dlpack__(copy=True)


def test_a_consumer_on_another_stream_waits():
    device, arrays = opened()
    with device.driver.current():
        stream = device.driver.make_stream()
    taken = arrays.take(tensor_info((3,)), np.ones(3, np.float32))
    counts = device.driver.counts
    for consumer, orders in ((taken.stream, 0), (-1, 0), (stream, 1), (None, 2), (1, 3)):
        taken.__dlpack__(stream=consumer)
        assert counts["order"] == orders


def test_memory_of_an_export_is_reused_after_the_consumer_s_work():
    device, arrays = opened()
    with device.driver.current():
        stream = device.driver.make_stream()
    taken = arrays.take(tensor_info((3,)), np.ones(3, np.float32))
    taken.__dlpack__(stream=stream)
    before = device.driver.counts["order"]
    del taken
    with device.driver.current():
        device.lease(12, device.stream())
        assert device.driver.counts["order"] == before + 1
        device.lease(12, device.stream())
        assert device.driver.counts["order"] == before + 1


def test_capsules_that_nobody_consumes_leave_nothing():
    _, arrays = opened()
    before = live_exports()
    capsule = arrays.take(tensor_info((3,)), np.ones(3, np.float32)).__dlpack__()
    assert live_exports() == before + 1
    del capsule
    gc.collect()
    assert live_exports() == before


def test_what_was_imported_is_let_go_of():
    x = torch.arange(5)
    found = imported(x.__dlpack__())
    assert found.address == x.data_ptr() and found.kind is DType.I64 and found.dense
    strided = imported(x[::2].__dlpack__())
    assert not strided.dense and strided.shape == (3,)
    assert imported(torch.ones(2, 1, 3).expand(2, 1, 3).transpose(0, 1).__dlpack__()).dense
    assert imported(torch.ones(2, dtype=torch.complex64).__dlpack__()).type_name == "complex64"
    _, arrays = opened()
    before = live_exports()
    ours = imported(arrays.take(tensor_info((3,)), np.ones(3, np.float32)).__dlpack__())
    assert ours.shape == (3,) and live_exports() == before + 1
    del ours
    assert live_exports() == before


def test_tensors_of_the_host_go_there_and_come_back():
    device, arrays = opened(dlpack=GPU)
    program = chain_program(device, 64)
    for x in (torch.randn(64, requires_grad=True), torch.randn(128)[::2]):
        (y,) = arrays.give(program.run([arrays.take(info(), x)]), [x])
        assert isinstance(y, torch.Tensor)
        np.testing.assert_array_equal(y.numpy(), chained(x.detach().numpy()))


@pytest.mark.parametrize("gpu", [(1, 0), GPU])
def test_bfloat16(gpu):
    _, arrays = opened(dlpack=gpu)
    x = torch.randn(4, 3).to(torch.bfloat16)
    (y,) = arrays.give([arrays.take(tensor_info((4, 3), "bfloat16"), x)], [x])
    assert y.dtype is torch.bfloat16 and torch.equal(x, y)
    (z,) = arrays.give([arrays.take(tensor_info((3, 4), "bfloat16"), x.T)], [x])
    assert torch.equal(x.T, z)


def test_numpy_gives_numpy():
    device, arrays = opened(dlpack=GPU)
    program = chain_program(device, 64)
    x = np.random.default_rng(0).standard_normal((64, 2)).astype(np.float32)[:, 0]
    (y,) = arrays.give(program.run([arrays.take(info(), x)]), [x])
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, chained(x))
    (y,) = arrays.give(program.run([arrays.take(info(), list_like(x))]), [list_like(x)])
    assert type(y) is np.ndarray


def list_like(x):
    """A library's own kind of array in the host's memory."""

    class Own:
        def __array__(self, dtype=None, copy=None):
            return x

    return Own()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ones(3), "must be float32 of shape n, given is float64 of shape 3"),
        (np.ones((3, 1), np.float32), "must have shape n, given is 3x1"),
        (torch.ones(3, dtype=torch.int8), "must be float32 of shape n, given is int8 of shape 3"),
        (torch.ones(3, dtype=torch.complex64), "given is complex64 of shape 3"),
        (torch.ones(3, 1), "must have shape n, given is 3x1"),
        (torch.ones(3).to_sparse(), "tensor, not a dense one"),
        ("text", "is a str, not an array"),
        (Elsewhere(None, (2, 1)), "is on cuda:1, the model runs on cuda:0"),
    ],
)
@pytest.mark.parametrize("gpu", [(1, 0), GPU])
def test_refusals(value, message, gpu):
    if gpu == (1, 0) and isinstance(value, Elsewhere):
        pytest.skip("it is on a GPU")
    _, arrays = opened(dlpack=gpu)
    with pytest.raises(InputError, match="input 'x' .*" + message.replace("(", r"\(")):
        arrays.take(info(), value)


def test_gaps_that_only_the_library_can_close_are_refused():
    class Other:
        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

    _, arrays = opened()
    with pytest.raises(InputError, match="not row-major without gaps"):
        arrays.take(info(), Other(np.ones(6, np.float32)[::2]))


def test_arrays_of_the_legacy_stream_say_so():
    device, _ = opened()
    with device.driver.current():
        made = DeviceArray.empty(device, (3,), DType.F32, 0)
        half = DeviceArray.empty(device, (3,), DType.BF16, 0)
    assert made.__cuda_array_interface__["stream"] == 1
    with pytest.raises(AttributeError, match="bfloat16"):
        _ = half.__cuda_array_interface__
