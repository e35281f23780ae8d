"""What operators take for an operand: dense tensors on the CPU, of the sizes that they really have.

Shape functions answer for whatever lies on `meta`, and subclasses of tensors may say anything.
"""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode

from saccade import ops
from saccade.errors import OperandError
from saccade.ops import _tensors

BOXES = torch.tensor([[0, 0, 0, 3.0, 3], [1, -1, -1, 9, 9]])
X = torch.arange(2 * 4 * 8 * 6, dtype=torch.float32).reshape(2, 4, 8, 6)
NMS = ([0, 0, 1.0, 1], [0, 0, 1, 0.9], [2, 2, 3, 3])
WINDOW = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1, "offset_groups": 1}


def regions(name, *rest):
    def call(x, boxes):
        result = getattr(torch.ops.saccade, name)(x, boxes, 1.0, 2, 2, *rest)
        return result if isinstance(result, torch.Tensor) else result[0]

    return call, (X, BOXES)


def gradient_of_regions(name, *rest):
    def call(grad, boxes, *more):
        return getattr(torch.ops.saccade, name)(grad, boxes, *more, 1.0, *rest)

    return call


def deform(x, weight, offset, bias, mask):
    return torch.ops.saccade.deform_conv2d(x, weight, offset, bias, mask, *WINDOW.values())


def deform_back(grad, *operands):
    wanted = [True] * 5
    return torch.ops.saccade._deform_conv2d_backward(grad, *operands, wanted, *WINDOW.values())


WEIGHT, OFFSET, BIAS = torch.ones(3, 4, 3, 2), torch.ones(2, 12, 6, 5), torch.ones(3)
MASK, GRAD = torch.ones(2, 6, 6, 5), torch.ones(2, 3, 6, 5)
POOLED = torch.ones(2, 4, 2, 2)
PLACES = torch.zeros(2, 4, 2, 2, dtype=torch.int32)
IMAGES = (2, 2, 2, 4, 8, 6, False)

CALLS = {
    "roi_align": regions("roi_align", 2, False),
    "roi_pool": regions("roi_pool"),
    "ps_roi_align": regions("ps_roi_align", 2),
    "ps_roi_pool": regions("ps_roi_pool"),
    "nms": (lambda b, s: ops.nms(b, s, 0.5), (torch.tensor(NMS), torch.rand(3))),
    "batched_nms": (
        lambda b, s, i: ops.batched_nms(b, s, i, 0.5),
        (torch.tensor(NMS), torch.rand(3), torch.tensor([0, 0, 1])),
    ),
    "deform_conv2d": (deform, (X, WEIGHT, OFFSET, BIAS, MASK)),
    "vector_norm": (lambda x: ops.vector_norm(x, dim=1), (X,)),
    "pixel_shuffle": (lambda x: ops.pixel_shuffle(x, 2), (X,)),
    "space_to_depth": (lambda x: ops.space_to_depth(x, 2), (X,)),
    "roi_align_backward": (
        gradient_of_regions("_roi_align_backward", (2, 8, 6), 2, False, False),
        (POOLED, BOXES),
    ),
    "roi_pool_backward": (
        gradient_of_regions("_roi_pool_backward", *IMAGES), (POOLED, BOXES, PLACES)
    ),
    "ps_roi_align_backward": (
        gradient_of_regions("_ps_roi_align_backward", 2, 2, 2, *IMAGES[2:]),
        (torch.ones(2, 1, 2, 2), BOXES, PLACES),
    ),
    "ps_roi_pool_backward": (
        gradient_of_regions("_ps_roi_pool_backward", *IMAGES),
        (torch.ones(2, 1, 2, 2), BOXES, PLACES),
    ),
    "deform_conv2d_backward": (deform_back, (GRAD, X, WEIGHT, OFFSET, MASK)),
    "vector_norm_backward": (
        lambda *t: torch.ops.saccade._vector_norm_backward(*t, None, 2.0, [1], False),
        (torch.ones(2, 8, 6), X, ops.vector_norm(X, dim=1)),
    ),
}  # fmt: skip
EACH = [(name, i) for name, (_, operands) in CALLS.items() for i in range(len(operands))]
MANY = [case for case in EACH if len(CALLS[case[0]][1]) > 1]


def replaced(name, number, make):
    """The call, and its operands with another one in one place."""
    call, operands = CALLS[name]
    return call, [make(t) if i == number else t for i, t in enumerate(operands)]


@pytest.mark.parametrize(("name", "number"), MANY)
def test_operands_on_several_devices_are_refused(name, number):
    call, operands = replaced(name, number, lambda t: t.to("meta"))
    with pytest.raises(OperandError, match=r"on one device: .* on meta"):
        call(*operands)
    call, operands = replaced(name, None, None)
    nowhere = [t.to("meta") for t in operands]
    if "nms" in name:
        with pytest.raises(OperandError, match="how many boxes stay"):
            call(*nowhere)
    else:
        assert all(t.is_meta for t in tensors(call(*nowhere)))


@pytest.mark.parametrize(
    "stored",
    [
        torch.Tensor.to_sparse,
        torch.Tensor.to_mkldnn,
        lambda t: torch.quantize_per_tensor(t, 0.5, 0, torch.qint8),
        lambda t: torch.nested.nested_tensor(list(t)),
    ],
    ids=["sparse", "mkldnn", "quantised", "nested"],
)
@pytest.mark.filterwarnings("ignore")  # PyTorch's, that these are prototypes or go away
@pytest.mark.parametrize("name", CALLS)
def test_other_storages_are_refused(name, stored):
    call, operands = replaced(name, 0, stored)
    with pytest.raises(OperandError, match=r"dense tensors on the CPU|Got torch\.qint8"):
        call(*operands)


def test_negative_views_and_tensors_of_zeros_are_what_they_say():
    pair = torch.complex(X, X + 1).conj()
    negative = pair.imag
    assert negative.is_neg()
    for name in ("roi_align", "pixel_shuffle", "vector_norm"):
        call, operands = replaced(name, 0, lambda _t: negative)
        _, wanted = replaced(name, 0, lambda _t: negative.resolve_neg())
        assert torch.equal(call(*operands), call(*wanted))
        _, zeros = replaced(name, 0, lambda t: torch._efficientzerotensor(t.shape))
        assert not call(*zeros).any()
    assert torch.equal(ops.pixel_shuffle(pair, 2), torch.pixel_shuffle(pair.resolve_conj(), 2))


def test_fake_tensors_give_fake_tensors():
    with FakeTensorMode() as mode:
        x, boxes = mode.from_tensor(X), mode.from_tensor(BOXES)
    found = ops.roi_align(x, boxes, 2)
    assert type(found) is type(x)
    assert found.shape == (2, 4, 2, 2)


class Liar(torch.Tensor):
    """Says that it is larger than it is."""

    shape = property(lambda self: torch.Size([64 * n for n in torch.Tensor.size(self)]))

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim=None):
        found = tuple(4096 * n for n in torch.Tensor.stride(self))
        return found if dim is None else found[dim]


class Silent(torch.Tensor):
    """Has none of a tensor's methods."""

    shape = dtype = size = stride = dim = data_ptr = numel = is_contiguous = None


@pytest.mark.parametrize(("name", "number"), EACH)
def test_sizes_are_those_of_the_memory(name, number):
    """Either what the tensor behind it gives, or a refusal; nothing outside of it is read."""
    call, operands = replaced(name, number, lambda t: t.as_subclass(Liar))
    _, honest = replaced(name, None, None)
    wanted = call(*honest)
    try:
        found = call(*operands)
    except OperandError:
        return
    for a, b in zip(*map(tensors, (found, wanted)), strict=True):
        assert torch.equal(a.as_subclass(torch.Tensor), b)


def tensors(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def test_subclasses_are_tensors():
    class Named(torch.Tensor):
        pass

    x = X.clone().as_subclass(Named).requires_grad_()
    found = ops.roi_align(x, BOXES, 2)
    assert torch.equal(found.as_subclass(torch.Tensor), ops.roi_align(X, BOXES, 2))
    found.sum().backward()
    assert x.grad.shape == X.shape
    silent = X.as_subclass(Silent)
    result = torch.ops.saccade.roi_align(silent, BOXES, 1.0, 2, 2, -1, False)
    assert torch.equal(result.as_subclass(torch.Tensor), found.detach().as_subclass(torch.Tensor))


@pytest.mark.parametrize("name", [*CALLS][:5])
def test_the_gradient_of_a_liar_has_its_true_size(name):
    if name == "nms":
        return
    call, (x, boxes) = CALLS[name]
    honest, liar = x.clone().requires_grad_(), x.clone().as_subclass(Liar).requires_grad_()
    for tensor in (honest, liar):
        result = call(tensor, boxes)
        result.as_subclass(torch.Tensor).backward(torch.ones(torch.Tensor.size(result)))
    assert torch.equal(liar.grad.as_subclass(torch.Tensor), honest.grad)


@pytest.mark.parametrize(("name", "number"), EACH)
def test_what_is_nowhere_is_not_read(name, number):
    def emptied(tensor):
        gone = tensor.clone()
        gone.untyped_storage().resize_(0)
        return gone

    call, operands = replaced(name, number, emptied)
    if name.startswith("ps_roi") and number == 2:
        return  # the mapping, which torchvision's gradients take, is not read
    with pytest.raises(OperandError, match="no memory"):
        call(*operands)


@pytest.mark.parametrize(("name", "number"), EACH)
def test_nothing_in_place_of_a_tensor(name, number):
    call, operands = replaced(name, number, lambda _t: None)
    if (name.startswith("deform") and number > 2) or (name.startswith("ps_roi") and number == 2):
        return  # may be None, or is not read
    with pytest.raises(OperandError, match=r"NoneType, not a tensor"):
        call(*operands)
    with pytest.raises(OperandError, match=r"NoneType, not a tensor"):
        call(*(t if t is None else t.to("meta") for t in operands))


@pytest.mark.parametrize(("name", "number"), EACH)
@pytest.mark.parametrize("change", ["longer", "shorter", "flat", "double"])
def test_operands_that_do_not_fit_each_other(name, number, change):
    """Gradients are operators too, which graphs call by name: they believe nothing either."""
    changes = {
        "longer": lambda t: torch.cat([t, t]),
        "shorter": lambda t: t[:1],
        "flat": torch.flatten,
        "double": lambda t: t.double() if t.is_floating_point() else t.long(),
    }
    call, operands = replaced(name, number, changes[change])
    right = replaced(name, None, None)[1]
    try:
        found = call(*operands)
    except OperandError:
        return
    for a, b in zip(*map(tensors, (found, call(*right))), strict=True):
        assert a.isfinite().all()
        assert a.shape == b.shape or change in ("longer", "shorter", "flat")


def test_places_of_a_gradient_that_are_not_there():
    call, (grad, boxes, places) = CALLS["roi_pool_backward"]
    wild = torch.tensor([-1, -(2**31), 2**31 - 1, 48, 47, 0], dtype=torch.int32)
    picked = wild[torch.arange(places.numel()) % 6].reshape(places.shape)
    found = call(grad, boxes, picked)
    assert found.sum() == (picked >= 0).logical_and(picked < 48).sum()


def test_results_that_no_machine_holds():
    for bins in (2**20, 2**31, 2**40, 2**62, (2**62, 1), (1, 2**50)):
        for operator in (ops.roi_align, ops.roi_pool):
            with pytest.raises(OperandError, match=r"memory|bytes"):
                operator(X, BOXES, bins)
            assert operator(X, BOXES, 2).shape == (2, 4, 2, 2)
    with pytest.raises(OperandError, match=r"memory|bytes"):
        images = (2**20, 2**20, 2**10)
        torch.ops.saccade._roi_align_backward(POOLED, BOXES, 1.0, images, 2, False, False)


def test_a_promise_of_memory_is_not_believed(monkeypatch):
    """Systems that promise what they do not have kill who takes it."""
    monkeypatch.setattr(_tensors, "_MEMORY", 1 << 24)
    for _ in range(2):
        with pytest.raises(OperandError, match="takes 67108864 bytes, the machine has 16777216"):
            ops.pixel_shuffle(torch.empty(1, 4, 1, 1).expand(1, 4, 1, 1 << 22), 2)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", [n for n in CALLS if "roi" in n])
def test_scales_that_are_not_finite(name, scale):
    call = getattr(torch.ops.saccade, name if "back" not in name else f"_{name}")
    rest = {
        "roi_align": (2, 2, 2, False),
        "roi_pool": (2, 2),
        "ps_roi_align": (2, 2, 2),
        "ps_roi_pool": (2, 2),
        "roi_align_backward": ((2, 8, 6), 2, False, False),
        "ps_roi_align_backward": (2, 2, 2, *IMAGES[2:]),
        "ps_roi_pool_backward": IMAGES,
    }.get(name)
    if rest is None:
        return  # its bins say which pixels, whatever the scale was
    with pytest.raises(OperandError, match="spatial_scale must be finite"):
        call(*CALLS[name][1], scale, *rest)


def test_boxes_that_are_not_finite_are_zeros_for_all():
    """And nothing flows back from them."""
    nan, inf = float("nan"), float("inf")
    corners = [(nan, 0, 3, 3), (0, nan, 3, 3), (0, 0, nan, 3), (0, 0, 3, nan), (nan,) * 4]
    corners += [(-inf, 0, 3, 3), (0, 0, inf, 3), (0, -inf, 3, inf), (inf,) * 4]
    boxes = torch.tensor([(0.0, *c) for c in corners])
    x = (X + 1).requires_grad_()
    for operator, ratios in (
        (ops.roi_align, [(0,), (2,), (0, True), (2, True)]), (ops.roi_pool, [()]),
        (ops.ps_roi_align, [(0,), (2,)]), (ops.ps_roi_pool, [()]),
    ):  # fmt: skip
        for ratio in ratios:
            for dtype in (torch.float32, torch.float64):
                y = operator(x, boxes.to(dtype), 2, 1.0, *ratio)
                assert not y.any(), (operator, ratio)
                (dx,) = torch.autograd.grad(y.sum(), x)
                assert not dx.any(), (operator, ratio)


def test_lists_of_boxes_on_several_devices():
    boxes = [BOXES[:, 1:], BOXES[:, 1:].to("meta")]
    with pytest.raises(OperandError, match="boxes are on cpu and meta"):
        ops.roi_align(X, boxes, 2)
    with pytest.raises(OperandError, match="must be dense"):
        ops.roi_align(X, [BOXES[:, 1:].to_sparse()], 2)
    assert ops.roi_align(X.to("meta"), [], 2).shape == (0, 4, 2, 2)


@pytest.mark.parametrize("one", [None, X[0, 0, 0], X[0], 3])
def test_feature_maps_of_a_pyramid(one):
    pyramid = ops.MultiScaleRoIAlign(["a", "b"], 2, 2)
    with pytest.raises(OperandError, match="feature maps are"):
        pyramid({"a": X, "b": one}, [BOXES[:, 1:]] * 2, [(16, 12)] * 2)
