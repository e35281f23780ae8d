"""Source -> Graph: reads, checks and normalises an ONNX model and lowers it to the small IR.

Importing this package imports neither onnx nor onnx_ir: a warm start loads the lowered graph from
the cache and needs only `digest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from saccade.errors import ModelError, PlanError
from saccade.frontend.onnx.read import digest, seen

if TYPE_CHECKING:
    from saccade.ir import Array, Graph
    from saccade.options import Options

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
    from saccade.frontend.onnx.specialise import (  # noqa: PLC0415
        FixedByFileError,
        Own,
        declare,
        opened,
        resolve,
    )
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
    own: Own = {}
    import_ = partial(lower, model, array_reader(references), limits, deadline)
    if options is not None and options.shapes:
        axes, own = resolve(model, options.shapes)
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
    return import_(known, allow_reference=allowed, own=own)
