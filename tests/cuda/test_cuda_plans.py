"""Plans for GPUs: no step is left to the host, JSON reads back, products count as they are."""

import pytest

import saccade
from saccade.plan import Plan
from saccade.plan.floor import floor, peak

NAMES = (
    "subpixel_x4", "subpixel_x4_fp16", "resnet50", "mobilenet_v3_large", "shufflenet_v2_x1_0",
    "efficientnet_b0", "densenet121", "deeplabv3_mobilenet", "vit_b_16", "dcnv2_small",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_every_step_of_a_model_has_a_kernel(filled, name, precision):
    model = saccade.compile(
        filled(name), device="cuda", machine="h200", precision=precision, cache=False
    )
    shapes = {
        info.name: tuple(size if isinstance(size, int) else (2, 3, 160, 160)[axis]
                         for axis, size in enumerate(info.shape))
        for info in model.inputs
    }  # fmt: skip
    plan = model.plan(**shapes)
    assert (plan.device, plan.isa, plan.threads) == ("cuda", "sm_90", 1)
    assert [step.name for step in plan.steps if step.kernel is None] == []
    assert Plan.from_json(plan.to_json()) == plan
    if precision == "fp16":
        products = [step for step in plan.steps if step.op.contracts]
        assert {peak(step, plan.speeds) for step in products} == {plan.speeds.pair_flops}
    assert 0 < floor(plan).total < plan.estimate
