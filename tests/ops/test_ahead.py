"""Code of operators that is compiled without a GPU, and taken from a file."""

from __future__ import annotations

import pytest
import torch

from saccade import ops
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.cubins import Cubins
from saccade.errors import ModelError, OperandError, OptionError
from saccade.ops import _cuda_library, ahead, patch
from saccade.ops._channels_last import channels_last, planar, planar_again


@pytest.fixture
def asked(monkeypatch):
    """Keys of code that was asked for; a made-up cubin for each."""
    keys = []
    cubins = Cubins(90, disk=False)

    def codes(_self, wanted):
        wanted = list(wanted)
        keys.extend(wanted)
        return [Cubin(key.kernel, repr(key).encode(), ("x",), 4, 0) for key in wanted]

    monkeypatch.setattr(_cuda_library.Compiler, "codes", codes)
    monkeypatch.setattr(ahead, "cubins_of", lambda _arch: cubins)
    return keys, cubins


def test_calls_on_meta_are_compiled_forward_and_backward(asked, tmp_path):
    keys, cubins = asked
    file = tmp_path / "operators.saccade"
    with ops.compile_ahead(file, "h200"):
        x = torch.empty(2, 64, 50, 60, device="meta", requires_grad=True)
        y = ops.roi_align(x, torch.empty(100, 5, device="meta"), 7, 0.25, 2, True)
        y.sum().backward()
        kept = ops.nms(torch.empty(100, 4, device="meta"), torch.empty(100, device="meta"), 0.5)
    assert y.shape == (100, 64, 7, 7) and x.grad.shape == x.shape and kept.shape == (100,)
    names = {key.kernel for key in keys}
    assert names == {"movement.copy", "roi.align", "roi.align_gradient", "nms.suppress"}
    assert ops.load_code(file) == len(set(keys))
    assert all(cubins._recalled(key) for key in keys)


def test_images_are_copied_where_they_are_read_often(asked, tmp_path):
    keys, _ = asked
    boxes = torch.empty(100, 5, device="meta")
    many = torch.empty(2, 64, 50, 60, device="meta")
    few = torch.empty(2, 8, 20, 30, device="meta")
    last = many.contiguous(memory_format=torch.channels_last)
    reads = 2 * 2 * 50 * 60 // 100
    with ops.compile_ahead(tmp_path / "f", "h200"):
        assert channels_last(many, boxes, reads - 1) is many
        assert channels_last(few, boxes, 1 << 40) is few
        assert channels_last(last, boxes, 1 << 40) is last
        assert channels_last(many, boxes[0], 1 << 40) is many
        assert keys == []
        copy = channels_last(many, boxes, reads)
        assert copy.shape == many.shape and copy.stride() == last.stride()
        assert planar_again(copy).stride() == many.stride()
    assert [key.kernel for key in keys] == ["movement.copy"] * 2
    host = torch.empty(2, 64, 50, 60)
    assert channels_last(host, boxes, 1 << 40) is host


def test_images_are_taken_apart_where_bins_read_more_than_copying(asked, tmp_path):
    keys, _ = asked
    boxes = torch.empty(100, 5, device="meta")
    plain = torch.empty(2, 64, 50, 60, device="meta")
    many = plain.contiguous(memory_format=torch.channels_last)
    few = torch.empty(2, 8, 20, 30, device="meta").to(memory_format=torch.channels_last)
    nbytes = 2 * 4 * 2 * 50 * 60 // 100
    with ops.compile_ahead(tmp_path / "f", "h200"):
        assert planar(many, boxes, nbytes - 1) is many
        assert planar(few, boxes, 1 << 40) is few
        assert planar(plain, boxes, 1 << 40) is plain
        assert planar(many, boxes[0], 1 << 40) is many
        assert keys == []
        assert planar(many, boxes, nbytes).stride() == plain.stride()
        places = torch.ops.saccade.roi_pool(plain, boxes, 0.5, 3, 3)[1]
        assert places.is_contiguous(memory_format=torch.channels_last)
    host = torch.empty(2, 64, 50, 60).to(memory_format=torch.channels_last)
    assert planar(host, boxes, 1 << 40) is host


def test_code_is_for_training_and_for_inference(asked, tmp_path):
    keys, _ = asked
    x, boxes = torch.empty(2, 8, 20, 30, device="meta"), torch.empty(9, 5, device="meta")
    with ops.compile_ahead(tmp_path / "f", "h200"):
        ops.roi_pool(x, boxes, 3)
    assert {key.config.places for key in keys if key.kernel == "roi.pool"} == {False, True}


def test_nothing_is_compiled_for_tensors_of_the_host(asked, tmp_path):
    keys, _ = asked
    with ops.compile_ahead(tmp_path / "f", "h200"):
        ops.pixel_shuffle(torch.rand(1, 4, 3, 3), 2)
    assert keys == []


def test_outside_meta_gives_shapes_alone(asked):
    keys, _ = asked
    assert ops.pixel_shuffle(torch.empty(1, 4, 3, 3, device="meta"), 2).shape == (1, 1, 6, 6)
    assert keys == []


def test_an_unknown_gpu_is_refused(tmp_path):
    with pytest.raises(OptionError, match="'gpu9'"), ops.compile_ahead(tmp_path / "f", "gpu9"):
        pass


def test_what_is_no_code_of_this_version_is_refused(asked, tmp_path, monkeypatch):
    file = tmp_path / "operators.saccade"
    with ops.compile_ahead(file, "h200"):
        ops.pixel_shuffle(torch.empty(1, 4, 3, 3, device="meta"), 2)
    content = bytearray(file.read_bytes())
    content[-4000] ^= 1
    (tmp_path / "flipped").write_bytes(content)
    with pytest.raises(ModelError, match="is damaged"):
        ops.load_code(tmp_path / "flipped")
    (tmp_path / "cut").write_bytes(content[:100])
    with pytest.raises(ModelError, match="cut short"):
        ops.load_code(tmp_path / "cut")
    monkeypatch.setattr(ahead, "VERSION", "0.0.0")
    with pytest.raises(ModelError, match="made by another version"):
        ops.load_code(file)


def test_an_operand_elsewhere_is_refused():
    x = torch.empty(1, 4, 3, 3, device="meta")
    with pytest.raises(OperandError, match="on one device"):
        ops.roi_align(x, torch.rand(2, 5), 2)


@pytest.mark.parametrize(
    ("gpus", "devices"),
    [
        ([], ("CPU",)), ([(9, 0)], ("CPU", "CUDA")), ([(8, 0), (8, 9)], ("CPU", "CUDA")),
        ([(9, 0), (7, 5)], ("CPU",)), ([(12, 0)], ("CPU",)),
    ],
)  # fmt: skip
def test_torchvision_keeps_gpus_that_code_is_not_for(gpus, devices, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(gpus))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
    monkeypatch.setattr(torch.cuda, "get_device_capability", gpus.__getitem__)
    assert patch._devices() == devices
