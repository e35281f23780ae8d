"""What other sizes of a model will want, found out by planning for a few of them.

Which algorithm a layer takes depends on its size, and a kernel that is missing when a size is first
run costs a tenth of a second, a packed constant up to 2 ms a megabyte. Plans around the first size
name most of those that sizes from half to one and a half times as large will ever want.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from saccade.errors import PlanError
from saccade.ir import Graph
from saccade.ir.dim import symbols_of
from saccade.kernels.base import Key
from saccade.layout import Available, GraphLayout
from saccade.limits import Deadline, Limits

__all__ = ["kernels_ahead", "kernels_of", "layouts_ahead"]

_FACTORS = (
    (0.51, 0.53), (1.49, 1.47), (0.75, 1.25), (1.3, 0.6), (0.6, 0.8), (1.2, 1.15),
    (1.0, 0.55), (0.7, 1.0), (1.0, 1.15), (0.85, 0.85),
)  # fmt: skip
"""Of even and odd symbols in turn: images grow and shrink, and become wide and tall. The last four
were found by a search for those that leave the fewest constants unpacked."""


def kernels_of(laid: GraphLayout) -> list[Key]:
    """The kernels of a plan."""
    return [
        (step.choice.kernel.name, launch.config)
        for step in laid.all_steps()
        if step.choice.kernel is not None
        for launch in step.launches
    ]


def kernels_ahead(
    graph: Graph,
    sizes: Mapping[str, int],
    lay_out: Callable[[Mapping[str, int], Available], GraphLayout],
    known: Collection[Key],
    limits: Limits,
) -> list[Key]:
    """What plans for sizes around these take beside the kernels that are known.

    Args:
        graph: The model.
        sizes: Of its symbols.
        lay_out: Plans for other sizes, with the code that is said to be available.
        known: Kernels that there is or will be code for.
        limits: As of `layouts_ahead`.
    """
    found = dict.fromkeys(known)

    # What the plans before it take counts as there, so that few kernels serve all of them.
    def available(kernel: str, config: object) -> bool:
        return (kernel, config) in found

    def lay_out_here(around: Mapping[str, int]) -> GraphLayout:
        return lay_out(around, available)

    for laid, _ in layouts_ahead(graph, sizes, lay_out_here, limits):
        found.update(dict.fromkeys(kernels_of(laid)))
    return [key for key in found if key not in known]


def layouts_ahead(
    graph: Graph,
    sizes: Mapping[str, int],
    lay_out: Callable[[Mapping[str, int]], GraphLayout],
    limits: Limits,
) -> Iterator[tuple[GraphLayout, Mapping[str, int]]]:
    """Plans for sizes around these, each with its sizes.

    Args:
        graph: The model.
        sizes: Of its symbols.
        lay_out: Plans for other sizes.
        limits: `seconds` for all of it; what is not planned by then is not looked at.
    """
    deadline = Deadline("planning for other sizes", limits)
    for around in _sizes_around(graph, sizes):
        try:
            # Inside of `try`: to be late is no error here, what is left is passed over.
            deadline.check()
            laid = lay_out(around)
        except PlanError:  # too small for the model, too large, or too late
            continue
        yield laid, around


def _sizes_around(graph: Graph, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Others for the symbols of the inputs; bounds of what is found later follow from them."""
    # Dims of inputs are numbers or single symbols, no sums.
    dims = (dim for value in graph.inputs for dim in value.shape)
    names = list(dict.fromkeys(name for dim in dims for name in symbols_of(dim)))
    seen = [{name: sizes[name] for name in names}]
    for times in _FACTORS:
        scaled = (max(1, round(sizes[name] * times[i % 2])) for i, name in enumerate(names))
        around = dict(zip(names, scaled, strict=True))
        if around not in seen:  # small sizes round to equal ones
            seen.append(around)
            yield graph.with_bounds(around)
