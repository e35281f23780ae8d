"""Torchvision's operators on Saccade's kernels: the same results, and torchvision's own after."""

from __future__ import annotations

import gc
import os
import sys
import threading

import pytest
import torch

from saccade import ops
from saccade.errors import OptionError

ROIS = torch.tensor(
    [[0, 0.3, 1.2, 9.1, 8.4], [1, 2.7, 2.2, 12.9, 7.3], [1, 5.1, 0.4, 6.2, 12.6], [0, 4, 4, 5, 5]]
)
KEYS = ("CPU", "AutogradCPU", "AutocastCPU")


def roi_align(vision, x):
    return vision.ops.roi_align(x, ROIS.to(x), [2, 2], 0.9, 2, True)


def roi_pool(vision, x):
    return vision.ops.roi_pool(x, ROIS.to(x), [2, 2], 0.9)


def ps_roi_align(vision, x):
    return vision.ops.ps_roi_align(x, ROIS.to(x), [2, 2], 0.9, 2)


def ps_roi_pool(vision, x):
    return vision.ops.ps_roi_pool(x, ROIS.to(x), [2, 2], 0.9)


def deform_conv2d(vision, x):
    offset, mask = 0.4 * x[:, 2:], x[:, :4] + 1
    weight = x[:1, :, :2, 0].reshape(1, 8, 2, 1).repeat(3, 1, 1, 2)
    return vision.ops.deform_conv2d(
        x, offset.repeat(1, 2, 1, 1)[:, :8, :-1, :-1], weight, mask=mask[:, :, :-1, :-1]
    )


def plain_deform_conv2d(vision, x):
    return vision.ops.deform_conv2d(x, x, x[:4, :4, :2, :2].contiguous(), padding=1, dilation=2)


def nms(vision, x):
    corners = x.flatten()[:80].reshape(20, 4)
    boxes = torch.cat([corners[:, :2], corners[:, :2] + 2 + corners[:, 2:].abs()], 1)
    return vision.ops.nms(boxes, corners.sum(1), 0.3)


OPERATORS = [
    roi_align, roi_pool, ps_roi_align, ps_roi_pool, deform_conv2d, plain_deform_conv2d, nms,
]  # fmt: skip
DIFFERENTIABLE = [case for case in OPERATORS if case is not nms]


@pytest.fixture
def vision():
    return pytest.importorskip("torchvision")


def table(vision):
    """What the dispatcher has for each of torchvision's operators."""
    del vision
    names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("torchvision::")]
    return {name: torch._C._dispatch_dump(name) for name in names}


def image(dtype=torch.float64, layout=torch.contiguous_format):
    torch.manual_seed(1)
    return torch.randn(4, 8, 13, 14, dtype=dtype).contiguous(memory_format=layout)


def outcome(run, x):
    """The result, and the gradient of something that is not linear in it."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = run(x)
    if y.dtype is torch.int64:
        return y, None
    (y * y.detach().cos()).sum().backward()
    return y.detach(), x.grad


def same(one, other):
    for mine, theirs in zip(one, other, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def is_ours(vision):
    """Torchvision's kernels know no bfloat16."""
    try:
        return roi_align(vision, image(torch.bfloat16)).dtype is torch.bfloat16
    except (RuntimeError, NotImplementedError):
        return False


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("case", OPERATORS)
def test_every_operator(vision, case, layout):
    x = image(layout=layout)
    theirs = outcome(lambda t: case(vision, t), x)
    with ops.patch_torchvision():
        mine = outcome(lambda t: case(vision, t), x)
        with torch.inference_mode():
            below_autograd = case(vision, x)
    same(mine, theirs)
    assert torch.equal(below_autograd, mine[0])
    if case is not nms:
        assert mine[0].is_contiguous(memory_format=layout)
        assert mine[1].is_contiguous(memory_format=layout)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning", "ignore::DeprecationWarning")
def test_scripted(vision):
    scripts = {
        "align": torch.jit.script(vision.ops.RoIAlign([2, 2], 0.9, 2, True)),
        "pool": torch.jit.script(vision.ops.RoIPool([2, 2], 0.9)),
        "deform": torch.jit.script(vision.ops.DeformConv2d(8, 4, 3).double()),
        "nms": torch.jit.script(vision.ops.nms),
    }
    offset = torch.randn(4, 18, 11, 12, dtype=torch.float64)

    def results(x):
        corners = ROIS[:, 1:].to(x)
        first = outcome(lambda t: scripts["align"](t, ROIS.to(t)), x)
        second = outcome(lambda t: scripts["pool"](t, ROIS.to(t)), x)
        third = outcome(lambda t: scripts["deform"](t, offset), x)
        return *first, *second, *third, scripts["nms"](corners, corners[:, 1], 0.1)

    theirs = results(image())
    with ops.patch_torchvision():
        same(results(image()), theirs)
        assert scripts["align"](image(torch.bfloat16), ROIS.bfloat16()).dtype is torch.bfloat16


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("case", DIFFERENTIABLE)
def test_compiled(vision, case, grad):
    x = image(layout=torch.channels_last)
    with ops.patch_torchvision():
        compiled = torch.compile(lambda t: case(vision, t) * 2, fullgraph=True, backend="aot_eager")
        with torch.set_grad_enabled(grad):
            y = compiled(x.requires_grad_(grad))
            assert torch.equal(y, case(vision, x) * 2)
        assert y.is_contiguous(memory_format=torch.channels_last)


def test_compiled_nms(vision):
    with ops.patch_torchvision():
        compiled = torch.compile(lambda t: nms(vision, t) + 1, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(image()), nms(vision, image()) + 1)


def test_what_was_compiled_is_compiled_again(vision):
    x, layout = image(layout=torch.channels_last), torch.channels_last
    tag = torch.compiler.config.cache_key_tag
    compiled = torch.compile(lambda t: roi_align(vision, t), fullgraph=True, backend="aot_eager")
    assert compiled(x).is_contiguous()
    with ops.patch_torchvision():
        assert compiled(x).is_contiguous(memory_format=layout)
        assert torch.compiler.config.cache_key_tag != tag
    assert compiled(x).is_contiguous()
    assert torch.compiler.config.cache_key_tag == tag


def test_autocast_keeps_what_it_gets(vision):
    x = image(torch.float32)
    deform = vision.ops.DeformConv2d(8, 4, 3)
    with ops.patch_torchvision(), torch.autocast("cpu", torch.bfloat16):
        for case in (roi_align,):
            seen = []
            half = x.bfloat16().requires_grad_()
            y = case(vision, half)
            y.grad_fn.register_prehook(lambda grads, seen=seen: seen.extend(grads))
            y.sum().backward()
            assert y.dtype is half.grad.dtype is seen[0].dtype is torch.bfloat16
            assert case(vision, x).dtype is torch.float32
        mixed = vision.ops.roi_align(x.bfloat16(), ROIS, 2)
        assert mixed.dtype is torch.bfloat16
        assert deform(x, torch.zeros(4, 18, 11, 12)).dtype is torch.bfloat16
        corners = ROIS[:, 1:].bfloat16()
        assert vision.ops.nms(corners, corners[:, 0], 0.5).dtype is torch.int64


def test_only_gradients_that_are_asked_for(vision):
    deform = vision.ops.DeformConv2d(8, 4, 3)
    x, offset = image(torch.float32).requires_grad_(), torch.zeros(4, 18, 11, 12)
    asked = []
    operator = torch.ops.saccade._deform_conv2d_backward

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is operator.default:
                asked.append(args[5])
            return function(*args, **(kwargs or {}))

    with ops.patch_torchvision():
        y = deform(x, offset)
        with Watch():
            y.sum().backward()
    assert asked == [[True, True, False, True, False]]


def test_gradient_operators_by_name(vision):
    """As graphs call them that were traced without the patch."""
    del vision
    grad, x = torch.randn(4, 8, 2, 2, dtype=torch.float64), image()
    torchvision = torch.ops.torchvision
    rois, sizes = ROIS.to(x), (*x.shape,)
    offset, weight = torch.randn(4, 18, 11, 12).to(x), torch.randn(4, 8, 3, 3).to(x)

    _, argmax = torchvision.roi_pool(x, rois, 0.9, 2, 2)
    _, mapping = torchvision.ps_roi_align(x, rois, 0.9, 2, 2, 2)

    def results():
        deform = torchvision._deform_conv2d_backward
        tall, geometry = torch.ones(4, 4, 11, 12).to(x), (1, 1, 0, 0, 1, 1, 1, 1)
        mask, bias = torch.rand(4, 9, 11, 12).to(x), torch.zeros(4).to(x)
        return [
            torchvision._roi_align_backward(grad, rois, 0.9, 2, 2, *sizes, 2, True),
            torchvision._roi_pool_backward(grad, rois, argmax, 0.9, 2, 2, *sizes),
            torchvision._ps_roi_align_backward(grad[:, :2], rois, mapping, 0.9, 2, 2, 2, *sizes),
            *deform(tall, x, weight, offset, mask, bias, *geometry, True),
            *deform(tall, x, weight, offset, torch.zeros(4, 1).to(x), bias, *geometry, False),
        ]

    torch.manual_seed(2)
    theirs = results()
    with ops.patch_torchvision():
        torch.manual_seed(2)
        torch.testing.assert_close(results(), theirs, rtol=1e-9, atol=1e-9)


def test_undo_restores_what_was_there(vision):
    before = table(vision)
    patch = ops.patch_torchvision()
    assert is_ours(vision)
    during = table(vision)
    changed = {name for name in before if before[name] != during[name]}
    assert {"torchvision::nms", "torchvision::_roi_align_backward"} <= changed
    for name, kernels in before.items():
        kept = [line for line in kernels.splitlines() if line.split(":")[0] not in KEYS]
        assert set(kept) <= set(during[name].splitlines())
    patch.undo()
    assert table(vision) == before
    patch.undo()
    assert table(vision) == before
    assert not is_ours(vision)


def test_patches_nest_and_end_in_any_order(vision):
    before = table(vision)
    first = ops.patch_torchvision()
    with ops.patch_torchvision() as second:
        first.undo()
        first.undo()
        assert is_ours(vision)
    assert table(vision) == before
    second.undo()
    with pytest.raises(KeyError), ops.patch_torchvision():
        raise KeyError
    assert table(vision) == before


def test_another_library_on_top_stays(vision):
    patch = ops.patch_torchvision()
    library = torch.library.Library("torchvision", "IMPL")
    library.impl("nms", lambda boxes, scores, threshold: torch.tensor([7]), "CPU")
    patch.undo()
    assert vision.ops.nms(ROIS[:, 1:], ROIS[:, 1], 0.5).tolist() == [7]
    library._destroy()
    assert vision.ops.nms(ROIS[:, 1:], ROIS[:, 1], 0.5).numel() > 1


def test_lasts_without_its_handle(vision):
    with ops.patch_torchvision() as undone:  # nothing else holds it
        kept = ops.patch_torchvision().undo
        gc.collect()
        undone.undo()
        assert is_ours(vision)
    kept()
    assert not is_ours(vision)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_keeps_it(vision):
    patch = ops.patch_torchvision()
    roi_align(vision, image(torch.float32))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            kept = is_ours(vision)
            patch.undo()
            status = 0 if kept and not is_ours(vision) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_ours(vision)
    patch.undo()


def test_threads(vision):
    before = table(vision)
    x = image()
    expected = outcome(lambda t: roi_align(vision, t), x)
    barrier = threading.Barrier(2)
    found = []

    def work():
        patch = ops.patch_torchvision()
        barrier.wait()
        results = [outcome(lambda t: roi_align(vision, t), x) for _ in range(5)]
        results.append((roi_align(vision, x.bfloat16()).double(), None))
        barrier.wait()
        patch.undo()
        found.append(results)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    for *results, _ in found:
        for result in results:
            same(result, expected)
    assert table(vision) == before


def test_without_torchvision(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(OptionError, match="torchvision is not installed"):
        ops.patch_torchvision()
