"""How one step would be done: with which storage, by which kernel, with which reorders around it.

The search asks for the time, the assignment follows the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from saccade.ir import BodyOp, DType, Factor, Graph, IndexMap, Node, Op, Value
from saccade.kernels.base import Call, Launch, View
from saccade.layout.select import Selector
from saccade.layout.types import Choice, Shapes, Taken
from saccade.layout.views import channels_last, row_major
from saccade.opdefs import Move

if TYPE_CHECKING:
    from saccade.backend import Backend
    from saccade.limits import Deadline

__all__ = ["Fit", "Fitter", "copy_of"]

_HOST = 1e5  # microseconds, an estimate of none: no reorder can be as bad as a step on the host


class Fit(NamedTuple):
    """One variant for a step.

    Attributes:
        call: With the operands as the kernel reads them and the results as it writes them.
        choice: The kernel.
        micros: Estimate, reorders that are needed for this step alone included.
        why: Why these reorders are needed; empty without any.
    """

    call: Call
    choice: Choice
    micros: float
    why: str = ""


class Fitter:
    """Finds the best variant for a step with operands and results that are stored somehow.

    Args:
        selector: Chooses among kernels.
        backend: Whose kernels.
        threads: Width of the team.
        exact: Whether only algorithms without extra rounding may be taken.
        deadline: When all that is asked for has to be found.
    """

    def __init__(
        self, selector: Selector, backend: Backend, threads: int, exact: bool, deadline: Deadline
    ) -> None:
        self._selector = selector
        self._backend = backend
        self._threads = threads
        self._exact = exact
        self._deadline = deadline
        self._calls: dict[Call, Call] = {}
        self._least_flops: dict[Call, float | None] = {}

    def step(
        self,
        op: Op,
        inputs: Sequence[tuple[View, ...]],
        outputs: Sequence[View],
        constant: tuple[bool, ...],
    ) -> Fit:
        """The best variant for an operator.

        Args:
            op: Bound.
            inputs: For each operand the views that exist of it, one or more.
            outputs: Where the results are to be.
            constant: Which operands are constant.

        Raises:
            PlanError: After the deadline.
        """
        asked = self._call(op, [views[0] for views in inputs], outputs, constant)
        # Few values exist in two orders.
        if all(len(views) == 1 for views in inputs):
            return self._plain(asked) or self._reordered(asked)
        found = [self._plain(self._call(op, ins, outputs, constant)) for ins in product(*inputs)]
        able = [fit for fit in found if fit is not None]
        return min(able, key=lambda fit: fit.micros) if able else self._reordered(asked)

    def reorder(self, source: View, target: View) -> Fit:
        """The copy from one storage to another."""
        call = self._call(copy_of(source.shape), (source,), (target,), (False,))
        return self._plain(call) or self._host(call)

    def takes(self, graph: Graph) -> Taken:
        """Whether a kernel takes a node, where storage is not chosen: of rank 4 channels-last.

        Args:
            graph: Says which operands are constant.
        """

        def stored(value: Value, shapes: Shapes) -> View:
            images = value.rank == 4 and value not in graph.constants
            return (channels_last if images else row_major)(value.dtype, shapes[value])

        def taken(node: Node, shapes: Shapes) -> bool:
            constant = tuple(value in graph.constants for value in node.inputs)
            ins = [stored(value, shapes) for value in node.inputs]
            outs = [stored(value, shapes) for value in node.outputs]
            call = self._call(node.op, ins, outs, constant)
            return any(
                kernel.supports(call) is None for kernel in self._backend.candidates(node.op)
            )

        return taken

    def launches(self, fit: Fit) -> tuple[Launch, ...]:
        """The phases of a step; none on the host."""
        return () if fit.choice.kernel is None else self._selector.launches(fit.call)

    def reusable(self, both: Fit, apart: Sequence[Fit], kernels: Sequence[str]) -> bool:
        """Whether steps by these kernels have code, are not much slower and give the same bits.

        Args:
            both: One step, which has no code if they are to be preferred.
            apart: The steps that do the same.
            kernels: With which they round like it.
        """
        micros = sum(fit.micros for fit in apart)
        # The estimates are there already; to look for code, phases have to be made.
        if micros > self._backend.reuse_slowdown * both.micros or self._selector.has_code(
            both.call
        ):
            return False
        return all(
            self._selector.rounds_alike(fit.call, name) and self._selector.has_code(fit.call)
            for fit, name in zip(apart, kernels, strict=True)
        )

    def least_flops(self, fit: Fit) -> float | None:
        """See `Backend.least_flops`."""
        call, known = fit.call, self._least_flops
        if call not in known:
            known[call] = self._backend.least_flops(call.op, call.inputs)
        return known[call]

    def _call(
        self, op: Op, inputs: Sequence[View], outputs: Sequence[View], constant: tuple[bool, ...]
    ) -> Call:
        """The call; equal ones are one object, so that they are compared but once."""
        # Every question to a kernel comes by here, and they are what planning takes time for.
        self._deadline.check()
        target = self._backend.target
        ins, outs = tuple(inputs), tuple(outputs)
        call = Call(op, ins, outs, constant, target, self._threads, self._exact)
        return self._calls.setdefault(call, call)

    def _plain(self, call: Call) -> Fit | None:
        found = self._selector.select(call)
        return None if found is None else Fit(call, found, found.cost)

    def _host(self, call: Call) -> Fit:
        why = ""
        if isinstance(call.op, BodyOp) and self._backend.dense_bodies:
            why = "a body takes and gives values without gaps"
            ins = _dense(call.inputs, (False,) * len(call.inputs), row_major)
            outs = _dense(call.outputs, (False,) * len(call.outputs), row_major)
            call = self._call(call.op, ins, outs, call.constant)
        return Fit(call, Choice(None, 0.0, self._selector.refusals(call)), _HOST, why)

    def _reordered(self, asked: Call) -> Fit:
        """The step with dense results, operands or both, where no kernel takes it as it is."""
        for ins, outs in _denser(asked):
            # What is copied is no constant to the kernel.
            kept = tuple(
                known and a == b
                for known, a, b in zip(asked.constant, asked.inputs, ins, strict=True)
            )
            fit = self._plain(self._call(asked.op, ins, outs, kept))
            if fit is not None:
                pairs = [
                    *zip(asked.inputs, ins, strict=True),
                    *zip(outs, asked.outputs, strict=True),
                ]
                moved = sum(self.reorder(a, b).micros for a, b in pairs if a != b)
                why = "; ".join(map(str, self._selector.refusals(asked)))
                return fit._replace(micros=fit.micros + moved, why=why)
        return self._host(asked)


def _denser(asked: Call) -> Iterator[tuple[tuple[View, ...], tuple[View, ...]]]:
    """Operands and results with fewer gaps, in the order in which they are tried."""
    seen = {(asked.inputs, asked.outputs)}
    # What kernels of images like best comes first.
    for of_images in (channels_last, row_major):
        dense_ins = _dense(asked.inputs, asked.constant, of_images)
        all_dense = _dense(asked.inputs, (False,) * len(asked.inputs), of_images)
        dense_outs = _dense(asked.outputs, (False,) * len(asked.outputs), of_images)
        # One side before both: each that changes costs a copy. Constants last, which kernels pack
        # where they can.
        for both in (
            (asked.inputs, dense_outs),
            (dense_ins, asked.outputs),
            (dense_ins, dense_outs),
            (all_dense, asked.outputs),
            (all_dense, dense_outs),
        ):
            if both not in seen:
                seen.add(both)
                yield both


def _dense(
    views: Sequence[View], keep: Sequence[bool], of_images: Callable[[DType, tuple[int, ...]], View]
) -> tuple[View, ...]:
    """The same values without gaps, those of rank 4 in an order of their own; some stay."""
    found = []
    for view, kept in zip(views, keep, strict=True):
        dense = of_images if len(view.shape) == 4 else row_major
        found.append(view if kept else dense(view.dtype, view.shape))
    return tuple(found)


def copy_of(shape: tuple[int, ...]) -> Move:
    """The movement from one storage to another, which leaves every element at its index."""
    factors = tuple(Factor(n, i) for i, n in enumerate(shape))
    return Move(IndexMap(tuple((n,) for n in shape), factors, (1,) * len(shape)))
