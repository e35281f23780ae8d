"""Calls go past PyTorch's dispatcher where it has nothing to do, and through it where it has."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, profiler
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from saccade import ops
from saccade.ops._direct import Gradient, direct


class _Function(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class _Other(torch.Tensor):
    pass


class _Ways:
    """An operator that says which way a call took, and what it was handed."""

    def __init__(self, *types, autocast=False):
        arguments = [SimpleNamespace(real_type=kind) for kind in types]
        self._schema = SimpleNamespace(arguments=arguments, name="saccade::ways")
        self.handed = None
        gradient = Gradient(lambda ctx, inputs, output: None, lambda ctx, grad: (2 * grad,))
        self.call = direct(self, self._run, gradient, self._forward_only, autocast=autocast)

    def __call__(self, *arguments):
        self.handed = arguments
        return "through"

    def _run(self, *arguments):
        self.handed = arguments
        return torch.full((), 7.0)

    def _forward_only(self, *arguments):
        self.handed = arguments
        return torch.full((), 8.0)

    def way(self, *arguments):
        found = self.call(*arguments)
        return found if isinstance(found, str) else "past"


def _x():
    return torch.arange(8.0).reshape(2, 4)


@pytest.mark.parametrize(
    "operand",
    [
        _x,
        lambda: _x().t(),
        lambda: torch.nn.Parameter(_x()),
        lambda: _x().requires_grad_(),
        lambda: torch.zeros(0),
        lambda: _x().to(torch.int8),
    ],
    ids=["plain", "strided", "parameter", "with a gradient", "empty", "integers"],
)
def test_dense_tensors_go_past(operand):
    assert _Ways("Tensor").way(operand()) == "past"


@pytest.mark.parametrize(
    "operand",
    [
        lambda: _x().as_subclass(_Other),
        lambda: torch._neg_view(_x()),
        lambda: torch._efficientzerotensor((2, 4)),
        lambda: _x().to_sparse(),
        lambda: _x().to("meta"),
        lambda: torch.quantize_per_tensor(_x(), 0.5, 0, torch.qint8),
        lambda: torch.nested.nested_tensor([_x()]),
        lambda: None,
        lambda: 1.0,
    ],
    ids=["subclass", "negated", "zeros", "sparse", "meta", "quantised", "nested", "none", "number"],
)
@pytest.mark.filterwarnings("ignore")  # PyTorch's, that these are prototypes or go away
def test_other_operands_go_through(operand):
    assert _Ways("Tensor").way(operand()) == "through"


def test_operands_on_two_devices_go_through():
    assert _Ways("Tensor", "Tensor").way(_x(), _x().to("meta")) == "through"


@pytest.mark.parametrize(
    ("within", "way"),
    [
        (_Function, "through"),
        (_Dispatch, "through"),
        (profiler.profile, "through"),
        (forward_ad.dual_level, "through"),
        (lambda: torch.device("cpu"), "through"),
        (torch.no_grad, "past"),
        (torch.inference_mode, "past"),
        (lambda: torch.autocast("cpu", torch.bfloat16), "past"),
        (nullcontext, "past"),
    ],
)
def test_what_watches_calls_sees_them(within, way):
    ways, x = _Ways("Tensor"), _x()
    with within():
        assert ways.way(x) == way
    assert ways.way(x) == "past"


def test_operators_with_a_rule_for_autocast_go_through_under_it():
    ways = _Ways("Tensor", autocast=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert ways.way(_x()) == "through"
    assert ways.way(_x()) == "past"


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")
def test_traces_see_operators():
    boxes = torch.tensor([[0.0, 0.0, 0.0, 3.0, 3.0]])

    def pooled(x):
        return ops.roi_align(x, boxes, 2)

    x = torch.rand(1, 2, 4, 4)
    assert "roi_align" in str(torch.jit.trace(pooled, x).graph)
    assert "saccade.roi_align" in make_fx(pooled)(x).code
    assert torch.func.vmap(pooled)(x[None]).shape == (1, 1, 2, 2, 2)
    with profiler.profile() as seen:
        pooled(x)
    assert "saccade::roi_align" in {event.name for event in seen.function_events}


def test_arguments_are_handed_over_as_the_dispatcher_does():
    ways = _Ways("Tensor", "Optional[Tensor]", "float", "List[int]", "bool", "ScalarType")
    assert ways.way(_x(), None, 2, (3, 4), True, torch.float32) == "past"
    _, missing, number, sizes, flag, kind = ways.handed
    assert (missing, number, sizes, flag, kind) == (None, 2.0, [3, 4], True, torch.float32)
    assert type(number) is float


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("int", True),
        ("int", np.int64(3)),
        ("float", torch.tensor(1.0)),
        ("List[int]", [np.int64(3)]),
        ("List[int]", 3),
        ("bool", 1),
        ("Optional[Tensor]", "no"),
    ],
)
def test_arguments_of_other_types_go_through(kind, given):
    assert _Ways("Tensor", kind).way(_x(), given) == "through"


def test_missing_arguments_go_through():
    assert _Ways("Tensor", "int").way(_x()) == "through"


@pytest.mark.parametrize("learns", [False, True])
def test_what_no_gradient_asks_for_is_not_computed(learns):
    ways, x = _Ways("Tensor"), _x().requires_grad_(learns)
    assert ways.call(x).item() == (7 if learns else 8)
    with torch.no_grad():
        assert ways.call(x).item() == 8


def test_gradients_flow_past():
    x = torch.tensor(1.0, requires_grad=True)
    y = _Ways("Tensor").call(x)
    y.backward()
    assert x.grad == 2
    assert "saccade_ways" in y.grad_fn.name()
    with torch.no_grad():
        assert _Ways("Tensor").call(x).grad_fn is None


def _calls():
    """Of operators with a gradient: a call as users make it, and through the dispatcher."""
    generator = torch.Generator().manual_seed(0)
    boxes = torch.tensor([[0.0, 0.5, 0.7, 5.0, 6.0], [1.0, 0.0, 0.0, 3.0, 8.0]])
    raw = torch.ops.saccade
    offset, weight = (
        torch.rand(2, 18, 7, 5, generator=generator),
        torch.rand(1, 8, 3, 3, generator=generator),
    )
    ones = ([1, 1], [0, 0], [1, 1], 1, 1)
    return {
        "align": (
            lambda x: ops.roi_align(x, boxes, 3),
            lambda x: raw.roi_align(x, boxes, 1.0, 3, 3, -1, False),
        ),
        "pool": (
            lambda x: ops.roi_pool(x, boxes, 3),
            lambda x: raw.roi_pool(x, boxes, 1.0, 3, 3)[0],
        ),
        "deform": (
            lambda x: ops.deform_conv2d(x, offset, weight),
            lambda x: raw.deform_conv2d(x, weight, offset, None, None, *ones),
        ),
        "norm": (
            lambda x: ops.vector_norm(x, 3, dim=1),
            lambda x: raw.vector_norm(x, 3.0, [1], False, torch.float32),
        ),
        "shuffle": (
            lambda x: ops.depth_to_space(x, 2),
            lambda x: raw.depth_to_space(x, 2, "DCR"),
        ),
    }


@pytest.mark.parametrize("name", _calls())
def test_both_ways_give_the_same(name):
    past, through = _calls()[name]
    x = torch.rand(2, 8, 9, 7, generator=torch.Generator().manual_seed(1))
    found = []
    for way in (past, through):
        leaf = x.clone().requires_grad_()
        y = way(leaf)
        (grad,) = torch.autograd.grad((y * y).sum(), leaf)
        found.append((y, grad))
    (y, grad), (other_y, other_grad) = found
    assert torch.equal(y, other_y)
    assert torch.equal(grad, other_grad)
    assert y.stride() == other_y.stride()
    assert torch.equal(past(x), other_y)


@pytest.mark.parametrize("name", _calls())
def test_autograds_own_batches_of_gradients_go_through_the_dispatcher(name):
    """Their tensors look like plain ones, and have no memory."""
    function = _calls()[name][0]
    x = torch.rand(2, 8, 9, 7, generator=torch.Generator().manual_seed(1), requires_grad=True)
    y = function(x)
    many = torch.rand(3, *y.shape, generator=torch.Generator().manual_seed(2))
    (batch,) = torch.autograd.grad(y, x, many, is_grads_batched=True)
    each = [torch.autograd.grad(function(x), x, one)[0] for one in many]
    assert torch.equal(batch, torch.stack(each))


def test_a_vectorised_jacobian():
    x = torch.rand(3, 5, dtype=torch.float64)
    ours, theirs = (
        torch.autograd.functional.jacobian(
            lambda t, norm=norm: norm(t, 3, dim=1), x, vectorize=True
        )
        for norm in (ops.vector_norm, torch.linalg.vector_norm)
    )
    torch.testing.assert_close(ours, theirs)
