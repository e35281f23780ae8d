"""Plans of real models for every described machine: complete, and the same wherever made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding as llvm
from machine_plans import digests, graph_of, laid_out, plan_of

from saccade import options as saccade_options
from saccade.backends.cpu import target
from saccade.backends.cpu.machines import MACHINES
from saccade.plan import Plan

SIZES = {
    "subpixel_x4": ((1, 3, 180, 320), (3, 3, 7, 5)),
    "subpixel_x4_fp16": ((1, 3, 180, 320),),
    "resnet50": ((1, 3, 224, 224), (8, 3, 96, 80)),
    "mobilenet_v3_large": ((1, 3, 224, 224), (3, 3, 96, 80)),
    "shufflenet_v2_x1_0": ((1, 3, 224, 224),),
    "efficientnet_b0": ((1, 3, 224, 224), (2, 3, 65, 97)),
    "densenet121": ((1, 3, 224, 224),),
    "deeplabv3_mobilenet": ((1, 3, 520, 520),),
    "vgg16": ((1, 3, 224, 224), (8, 3, 224, 224)),
    "resnet50_dynamo": ((1, 3, 224, 224),),
    "subpixel_x4_dynamo": ((1, 3, 33, 47),),
    "dcnv2_small": ((1, 3, 128, 128),),
}
TEAMS = (1, 2, 3, 64)


@pytest.fixture
def no_host(monkeypatch):
    """Whoever asks this machine what it is fails."""

    def asked(*_arguments):
        raise AssertionError("planning for a described machine asks the one that it runs on")

    for module, name in (
        (target, "cache_sizes"), (target, "cpuinfo"), (target, "host_target"),
        (target, "host_flags"), (llvm, "get_host_cpu_features"), (llvm, "get_host_cpu_name"),
        (saccade_options, "default_threads"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, asked)


@pytest.fixture(params=SIZES)
def graphs(request, zoo):
    """A model's graph, made before `no_host`, and its sizes."""
    return graph_of(zoo.path(request.param)), SIZES[request.param]


@pytest.mark.parametrize("machine", MACHINES)
def test_every_machine_has_a_plan(graphs, no_host, machine):
    graph, shapes = graphs
    for shape in shapes:
        plan = plan_of(graph, shape, machine)
        assert [s.name for s in plan.steps if s.kernel is None] == []
        assert plan.threads == MACHINES[machine].cores and plan.speeds.name == machine
        assert plan.isa == MACHINES[machine].isa
        again = Plan.from_json(plan.to_json())
        assert again == plan and again.to_json() == plan.to_json()


def rounded(step):
    """Where the step is, its kernel, and how the way that was taken rounds."""
    kernel = step.choice.kernel
    taken = next(v for v in kernel.variants(step.call) if v.launches == step.launches)
    return step.name, step.inputs, step.outputs, kernel.name, taken.rounding


@pytest.mark.parametrize("machine", MACHINES)
def test_the_team_changes_no_rounding(graphs, no_host, machine):
    graph, shapes = graphs
    for shape in shapes:
        first, *others = (
            [rounded(step) for step in laid_out(graph, shape, machine, team)[0].steps]
            for team in TEAMS
        )
        for team, steps in zip(TEAMS[1:], others, strict=True):
            assert steps == first, team


@pytest.mark.parametrize("machine", MACHINES)
def test_bfloat16_has_a_plan(zoo, machine):
    graph = graph_of(zoo.path("mobilenet_v3_large"), "bf16")
    plans = [plan_of(graph, (1, 3, 224, 224), machine, team) for team in (1, 64)]
    kernels = [[step.kernel for step in plan.steps] for plan in plans]
    assert None not in kernels[0] and kernels[0] == kernels[1]


def test_another_process_makes_the_same_plans(zoo):
    path, shape = zoo.path("shufflenet_v2_x1_0"), (1, 3, 224, 224)
    found = subprocess.run(
        [sys.executable, Path(__file__).with_name("machine_plans.py"), path, *map(str, shape)],
        env=os.environ | {"PYTHONHASHSEED": "17"}, capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    here = digests(path, shape)
    assert found.stdout.split() == here and len(set(here)) == len(MACHINES)


def test_machines_differ(zoo):
    """The tests above would find nothing if descriptions were not looked at."""
    graph = graph_of(zoo.path("deeplabv3_mobilenet"))
    plans = [plan_of(graph, (1, 3, 520, 520), machine, 2) for machine in MACHINES]
    assert len({tuple((s.name, s.kernel) for s in plan.steps) for plan in plans}) > 2
