"""Source -> Graph: reads, checks and normalises an ONNX model and lowers it to the small IR.

Importing this package imports neither onnx nor onnx_ir: a warm start loads the lowered graph from
the cache and needs only `digest`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from saccade.errors import ModelError, PlanError
from saccade.frontend.onnx.read import digest, seen

if TYPE_CHECKING:
    import onnx_ir

    from saccade.ir import Array, Graph
    from saccade.options import Options
    from saccade.shapes import FrozenShapes

__all__ = ["digest", "load", "seen"]


def load(
    source: object,
    options: Options | None = None,
    *,
    mapped: bool = False,
    known: Mapping[str, Array | tuple[int | None, ...]] | None = None,
) -> Graph:
    """The small IR of a model.

    Args:
        source: A path, the bytes of a file, an `onnx.ModelProto` or an `onnx_ir.Model`.
        options: Whose `limits` and `shapes` hold, and which say whether ONNX's reference
            implementation may do what nothing else can; every device gets the same graph.
        mapped: Whether the graph's constants may be views of the file, which is fast, but leaves it
            to the caller that the file stays as it is.
        known: Of inputs by name: values, which are constants then and no inputs of the graph, or
            shapes.

    Returns:
        The graph, inputs and outputs in the file's order, element types as the file has them. What
        is known while importing is computed in float32, and stays that where float16 would round
        it: rounding is for backends to decide. Unnamed dynamic axes are called `input_dim_0`.

    Raises:
        ModelError: If the file is broken or hostile, or exceeds a bound of `Limits`.
        PlanError: If the import takes longer than `Limits.seconds`.
        UnsupportedModelError: If it uses what Saccade cannot run; lists all of it.
        NeedsValuesError: If it could be run with other inputs' values, or sizes, known.
        InputError: If `shapes` do not fit it.
    """
    from saccade.frontend.onnx.check import check  # noqa: PLC0415 - see above
    from saccade.frontend.onnx.lower import lower  # noqa: PLC0415
    from saccade.frontend.onnx.normalise import array_reader, normalise  # noqa: PLC0415
    from saccade.frontend.onnx.read import read  # noqa: PLC0415
    from saccade.limits import Deadline, Limits  # noqa: PLC0415

    limits = Limits() if options is None else options.limits
    deadline = Deadline("importing the model", limits)
    given = read(source, mapped=mapped)
    deadline.check()
    # Before `normalise`: `onnx_ir` believes what a file says of itself.
    references = check(given.proto, given.folder, given.own, limits)
    deadline.check()
    model = normalise(given.proto)
    deadline.check()
    allowed = options is not None and options.allow_reference
    import_ = partial(lower, model, array_reader(references), limits, deadline)
    final = partial(import_, known, allow_reference=allowed)
    if options is not None and options.shapes:
        return _specialised(model, options.shapes, import_, final)
    return final()


def _specialised(
    model: onnx_ir.Model,
    shapes: FrozenShapes,
    import_: Callable[..., Graph],
    final: Callable[..., Graph],
) -> Graph:
    """The graph of a model whose inputs are declared otherwise.

    Args:
        model: As the file has it; changed.
        shapes: The user's.
        import_: Makes a graph of it as it is, to see whether it can be made.
        final: Makes the one that is returned.
    """
    from saccade.frontend.onnx.refusal import MisfitError  # noqa: PLC0415
    from saccade.frontend.onnx.specialise import (  # noqa: PLC0415
        FixedByFileError,
        declare,
        declared,
        opened,
        resolve,
        written_for,
    )

    before = declared(model)
    axes, own = resolve(model, shapes)
    free = opened(axes, own)
    declare(model, free)
    if free != axes:
        # Among numbers nobody sees which of them was another one in the file.
        try:
            import_(None, own=own)
        except FixedByFileError:
            raise
        except (ModelError, PlanError):  # numbers may do where symbols do not
            pass
        declare(model, axes)
    try:
        return final(own=own)
    except MisfitError as error:
        # Unless it contradicts itself whatever the sizes.
        declare(model, before)
        try:
            import_(None)
        except (ModelError, PlanError):
            raise error from None
        raise written_for(error, before) from None
