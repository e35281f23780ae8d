"""Torchvision's detectors on Saccade's kernels: what they find and how they learn stays the same.

`nms` gives the same indices to the last bit for the same boxes, so that proposals are equal as long
as nothing before them has changed; `roi_align` and `deform_conv2d` sum in another order, so that
what follows them is equal up to rounding.
"""

from __future__ import annotations

import pytest
import torch

from saccade import ops

detection = pytest.importorskip("torchvision.models.detection")
layers = pytest.importorskip("torchvision.ops")

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
        ],
    ),
]
SIZES = {"min_size": 128, "max_size": 160, "num_classes": 5}


def images():
    torch.manual_seed(5)
    return [torch.rand(3, 120, 150), torch.rand(3, 130, 110)]


def targets():
    boxes = torch.tensor([[10.0, 12, 60, 70], [40, 30, 100, 105], [5, 60, 50, 100]])
    return [{"boxes": boxes, "labels": torch.tensor([1, 2, 4])} for _ in range(2)]


def build(name, **options):
    torch.manual_seed(3)
    return getattr(detection, name)(weights=None, weights_backbone=None, **SIZES, **options)


def watch(module, seen):
    """Keep what a module is called with and what it returns."""
    module.register_forward_hook(lambda _, args, result: seen.append((args, result)))


def train(model, *, bf16=False):
    """Losses of a step, which leaves gradients. Samplers draw the same numbers every time."""
    torch.manual_seed(7)
    device = next(model.parameters()).device
    given = [image.to(device) for image in images()]
    wanted = [{name: t.to(device) for name, t in target.items()} for target in targets()]
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        losses = model(given, wanted)
    model.zero_grad()
    sum(losses.values()).backward()
    return {name: loss.detach() for name, loss in losses.items()}


@pytest.fixture
def exact_products():
    """No TF32 and one way for each convolution, or the boxes of both sides would differ."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = before


@pytest.mark.usefixtures("exact_products")
@pytest.mark.parametrize("device", DEVICES)
def test_a_training_step(device):
    model, seen = build("fasterrcnn_resnet50_fpn").to(device).train(), []
    watch(model.roi_heads.box_roi_pool, seen)
    theirs = train(model)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    with ops.patch_torchvision():
        mine = train(model)
    (_, their_boxes, _), _ = seen[0]
    (_, my_boxes, _), _ = seen[1]
    assert all(map(torch.equal, my_boxes, their_boxes))  # before any change of rounding
    their_bins, my_bins = seen[0][1], seen[1][1]
    assert (my_bins - their_bins).norm() <= 1e-5 * their_bins.norm()
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    for name, p in model.named_parameters():
        difference = (p.grad - gradients[name]).norm()
        assert difference <= 1e-4 * gradients[name].norm() + 1e-7, name


@pytest.mark.parametrize("device", DEVICES)
def test_training_in_bfloat16(device):
    model, seen = build("fasterrcnn_resnet50_fpn").to(device).train(), []
    watch(model.roi_heads.box_roi_pool, seen)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    totals = []
    with ops.patch_torchvision():
        for _ in range(2):
            totals.append(sum(train(model, bf16=True).values()).item())
            assert all(p.grad.isfinite().all() for p in model.parameters())
            optimizer.step()
    assert {result.dtype for _, result in seen} == {torch.bfloat16}
    assert totals[1] < totals[0]


def detections(model):
    with torch.inference_mode():
        return model.eval()(images())


def test_retinanet_finds_the_same():
    model = build("retinanet_resnet50_fpn", score_thresh=0.0, detections_per_img=30)
    theirs = detections(model)
    with ops.patch_torchvision():
        mine = detections(model)
    for one, other in zip(mine, theirs, strict=True):  # nms alone is replaced
        assert len(other["scores"]) == 30
        assert all(torch.equal(one[key], other[key]) for key in other)


def test_mask_rcnn_finds_the_same():
    model = build("maskrcnn_resnet50_fpn", box_score_thresh=0.0, box_detections_per_img=20)
    logits, classify = [], model.roi_heads.box_predictor.cls_score
    watch(classify, logits)
    detections(model)
    with torch.no_grad():  # fresh weights may give all boxes nearly the same scores
        classify.weight.mul_(2 / logits[0][1].std())
    theirs = detections(model)
    with ops.patch_torchvision():
        mine = detections(model)
    for one, other in zip(mine, theirs, strict=True):
        assert len(other["scores"]) == 20
        torch.testing.assert_close(one["scores"], other["scores"], rtol=1e-4, atol=1e-5)
        apart = other["scores"].diff().abs() > 1e-4
        sure = torch.ones(20, dtype=torch.bool)  # near-ties may change places
        sure[1:] &= apart
        sure[:-1] &= apart
        assert sure.sum() >= 10
        for key in ("boxes", "labels", "masks"):
            torch.testing.assert_close(one[key][sure], other[key][sure], rtol=1e-3, atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:RCNN always returns:UserWarning")
def test_scripted_detector():
    model = build("fasterrcnn_mobilenet_v3_large_320_fpn").eval()
    with torch.no_grad():
        eager = model(images())
    scripted = torch.jit.script(model)
    with ops.patch_torchvision(), torch.no_grad():
        _, found = scripted(images())
    for one, other in zip(found, eager, strict=True):
        assert one["boxes"].shape == other["boxes"].shape


class Deformed(torch.nn.Module):
    """A deformable layer as detectors have them: offsets and masks from a convolution."""

    def __init__(self):
        super().__init__()
        self.plan = torch.nn.Conv2d(16, 27, 3, padding=1)
        self.layer = layers.DeformConv2d(16, 24, 3, padding=1)

    def forward(self, x):
        plan = self.plan(x)
        return self.layer(x, plan[:, :18], plan[:, 18:].sigmoid())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_deformable_layer(layout):
    torch.manual_seed(4)
    model = Deformed().to(memory_format=layout)
    x = torch.randn(2, 16, 19, 23).contiguous(memory_format=layout).requires_grad_()

    def step():
        x.grad = None
        model.zero_grad()
        y = model(x)
        y.square().mean().backward()
        return [y.detach(), x.grad, *[p.grad for p in model.parameters()]]

    theirs = [t.clone() for t in step()]
    with ops.patch_torchvision():
        mine = step()
    for one, other in zip(mine, theirs, strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()
