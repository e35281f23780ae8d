"""Graph -> Graph: one file per pass, applied in the order of `STANDARD`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from saccade.errors import CompileError, PlanError, SaccadeError
from saccade.ir import Graph
from saccade.ir.verify import verify
from saccade.limits import Deadline, Limits
from saccade.passes import (
    canonicalise,
    compose_moves,
    delay_transposes,
    flatten_to_convolution,
    fold_constants,
    fold_factors,
    fold_padding,
    fold_scale_shift,
    fold_sizes,
    fuse_epilogue,
    fuse_pointwise,
    fuse_prologue,
    fuse_samples,
    fuse_store,
    keep_infinities,
    limit_suppression,
    lower_precision,
    merge_activations,
    merge_branches,
    merge_duplicates,
    merge_sums,
    normalise_operands,
    simplify_expressions,
    split_rotations,
)
from saccade.passes._bodies import lowered_bodies
from saccade.passes._pass import Note, Pass, Rule, apply

__all__ = ["BFLOAT16", "FLOAT16", "STANDARD", "Note", "Pass", "Rule", "Trace", "apply", "run"]

Trace = Callable[[str, Graph, tuple[Note, ...]], None]
"""Called after every pass with its name, its result, and why it left nodes alone."""

STANDARD: tuple[Pass, ...] = (
    fold_constants.PASS,
    merge_duplicates.PASS,
    normalise_operands.PASS,
    simplify_expressions.PASS,
    canonicalise.PASS,
    fold_padding.PASS,
    compose_moves.PASS,
    limit_suppression.PASS,
    fuse_samples.PASS,
    delay_transposes.PASS,
    merge_sums.PASS,
    fold_scale_shift.PASS,
    merge_branches.PASS,
    merge_activations.PASS,
    fuse_epilogue.PASS,
    fold_factors.PASS,
    flatten_to_convolution.PASS,
    fuse_store.PASS,
    fold_sizes.PASS,
    fuse_pointwise.PASS,
    split_rotations.PASS,
    fuse_pointwise.PASS,
    fuse_prologue.PASS,
    compose_moves.PASS,
    simplify_expressions.PASS,
    keep_infinities.PASS,
)
"""The passes of every compilation; twice where a later pass makes new work for an earlier one."""

BFLOAT16: tuple[Pass, ...] = (*STANDARD, lower_precision.PASS)
"""The passes of `precision="bf16"`."""

FLOAT16: tuple[Pass, ...] = (*STANDARD, lower_precision.FLOAT16)
"""The passes of `precision="fp16"`."""


def run(
    graph: Graph,
    passes: Sequence[Pass] = STANDARD,
    trace: Trace | None = None,
    *,
    check: bool = False,
    limits: Limits | None = None,
) -> Graph:
    """The graph after all passes.

    Args:
        graph: Left as it is.
        passes: In order.
        trace: Told of every pass.
        check: Verify the graph before the first pass and after each.
        limits: What rewrites may come to, and how long all of it may take; the default ones if
            None.

    Raises:
        PlanError: If it takes longer than `limits.seconds`; names the pass.
        CompileError: If a pass fails or breaks the graph; names the pass.
    """
    if check:
        verify(graph)
    limits = limits or Limits()
    graph = lowered_bodies(graph, lambda body: run(body, passes, check=check, limits=limits))
    deadline = Deadline("optimising the graph", limits)
    for step in passes:
        try:
            graph, notes = apply(step, graph, limits, deadline)
            if check:
                verify(graph)
        except PlanError as late:
            raise PlanError(f"pass {step.name}: {late}") from None
        except (
            ArithmeticError,
            AssertionError,
            LookupError,
            MemoryError,
            RuntimeError,
            SaccadeError,
            ValueError,
        ) as error:
            raise CompileError(f"pass {step.name}: {error}") from error
        if trace is not None:
            trace(step.name, graph, notes)
    return graph
