"""Nodes that no importer takes, as steps of ONNX's reference implementation.

A result whose element type and sizes ONNX's shape inference tells is a value like any other. What
no memory of a plan holds is a handle (`saccade.held`): strings, sequences, optional values, element
types that Saccade does not have, and tensors whose sizes nobody knows before the step has run. What
reads a handle is such a step, too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from saccade import held
from saccade.errors import InputError, ModelError
from saccade.frontend.onnx.builder import FOLD_ELEMENTS, Builder
from saccade.frontend.onnx.held_types import element_of, type_of
from saccade.frontend.onnx.listed import Result, Rows, TensorList
from saccade.frontend.onnx.reference_models import (
    draws,
    has_reference,
    inferred,
    is_tensor,
    model_of,
    shape_of,
)
from saccade.frontend.onnx.reference_reads import ReferenceReads, reads_of
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.survey import SPELLED, operator_of
from saccade.frontend.onnx.symbolic import whole_dims
from saccade.ir import Array, BodyNode, BodyOp, DType, Graph, Node, Value
from saccade.ir.dim import product
from saccade.opdefs import OnnxReference

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from saccade.frontend.onnx.call import OnnxNode

__all__ = ["ReferenceSteps", "remedies"]

_ALLOW = "allow_reference=True: by ONNX's reference implementation, on CPUs, slowly"
_FIXED = "fix the sizes of the inputs"
_NOTHING = "none by options: export the model without it"
_RANK = "say its shape: --shape, or shapes= of saccade.compile"
_NAMED = 3
_OPTIONAL, _SEQUENCES = 15, 13
"""Operator sets that have these, for models that import none."""
_HANDED_ON = "handed on as a whole"
_UNKNOWN = "ONNX's shape inference does not tell what it gives"
_BY_SIZE = "the sizes of its results follow from others in a way that ONNX's inference cannot tell"


class ReferenceSteps:
    """Makes steps of nodes.

    Args:
        build: The graph under construction.
        imports: Versions of the model's operator sets.
    """

    def __init__(self, build: Builder, imports: Mapping[str, int]) -> None:
        self._build = build
        self._imports = imports
        self._handles = count(held.FIRST_OF_STEPS)
        self._done: list[tuple[OnnxReference, str]] = []

    def input(self, source: onnx_ir.Value) -> Value:
        """An input of the model that no memory holds."""
        value = self._build.value(source.name or "", DType.I64, ())
        self._build.held[value] = type_of(source)
        return value

    def constant(self, array: Array, name: str) -> Value:
        """A constant of strings, or of an element type that Saccade does not have."""
        from onnx import helper, numpy_helper  # noqa: PLC0415 - warm starts need no onnx

        node = helper.make_node("Constant", [], ["r0"], value=numpy_helper.from_array(array))
        model = model_of(node, [], self._versions("", 13))
        why = "of an element type that no memory holds"
        (value,) = self._emit("Constant", model, ReferenceReads(), inferred(model, []), name, why)
        return value

    def absent(self, source: onnx_ir.Value) -> Value:
        """An output of the model that is an optional value which is not there.

        Raises:
            ModelError: If the file does not say that it may be absent.
        """
        from onnx import helper  # noqa: PLC0415

        kind, name = type_of(source), source.name or ""
        if kind.WhichOneof("value") != "optional_type":
            raise ModelError(f"the output {name!r} is not there, and no optional value")
        node = helper.make_node("Optional", [], ["r0"], type=kind.optional_type.elem_type)
        model = model_of(node, [], self._versions("", _OPTIONAL))
        (value,) = self._emit("Optional", model, ReferenceReads(), [kind], name, _HANDED_ON)
        return value

    def sequence(self, given: TensorList, name: str) -> Value:
        """A sequence that was but a list so far, for what reads it as a whole.

        Args:
            given: The sequence.
            name: Of the step.

        Raises:
            Refusal: If data decide how many tensors there are of which part.
        """
        from onnx import TensorProto, helper  # noqa: PLC0415

        reads = ReferenceReads()
        for i, item in enumerate(given.items):
            operand = item.value if isinstance(item, Rows) else item
            if operand is None or (isinstance(item, Rows) and len(given.items) > 1):
                raise Refusal("a sequence is as long as data decide")
            reads.take(self._build, f"saccade.{i}", operand, name)
        names = [f"saccade.{i}" for i in range(len(given.items))]
        if not names:
            kind = getattr(TensorProto, SPELLED[given.dtype or DType.F32])
            node = helper.make_node("SequenceEmpty", [], ["r0"], dtype=kind)
        elif isinstance(given.items[0], Rows):
            node = helper.make_node("SplitToSequence", names, ["r0"], axis=0, keepdims=0)
        else:
            node = helper.make_node("SequenceConstruct", names, ["r0"])
        model = model_of(node, reads.operands, self._versions("", _SEQUENCES))
        kinds = inferred(model, reads.operands)
        (value,) = self._emit(node.op_type, model, reads, kinds, name, _HANDED_ON)
        return value

    def node(
        self, call: OnnxNode, found: Mapping[onnx_ir.Value, Result], why: str
    ) -> dict[onnx_ir.Value, Value]:
        """The step of a node, and its results.

        Args:
            call: The node.
            found: What values of the model became.
            why: Nothing else takes it.

        Raises:
            Refusal: If the reference implementation does not take it either, or what it gives
                depends on sizes in a way that nobody knows.
            ModelError: If it is computed at once, and cannot be.
        """
        node = call.node
        proto = _proto_of(node)
        if proto is None:
            raise call.broken("an attribute of no type")
        reads = reads_of(call, found, proto, partial(self.sequence, name=call.name))
        wanted = [value for value in node.outputs if value.name]
        del proto.output[:]
        proto.output.extend(f"r{i}" if v.name else "" for i, v in enumerate(node.outputs))
        model = model_of(proto, reads.operands, self._versions(node.domain, call.opset))
        if not has_reference(model):
            raise Refusal("ONNX's reference implementation does not have it either")
        kinds = self._kinds(model, reads, wanted)
        operator = operator_of(node)
        try:
            results = self._emit(operator, model, reads, kinds, call.name, why)
        except InputError as error:
            raise call.broken(str(error)) from None
        return dict(zip(wanted, results, strict=True))

    def _versions(self, domain: str, opset: int) -> dict[str, int]:
        # Bodies hold nodes of other domains.
        return {**self._imports, domain: opset}

    def noted(self, graph: Graph) -> Graph:
        """The graph, with a remark for each kind of node that is done in this way."""
        steps = list(_steps(graph.nodes))
        remarks = [*_remarks(steps), *_remarks(self._done, ", while importing")]
        return replace(graph, remarks=(*graph.remarks, *remarks))

    # -- results ---------------------------------------------------------------------------------

    def _kinds(
        self, model: onnx.ModelProto, reads: ReferenceReads, wanted: Sequence[onnx_ir.Value]
    ) -> list[onnx.TypeProto]:
        """Types of the results.

        Raises:
            Refusal: If nothing is known of one, or its sizes would be for each size of the inputs.
        """
        kinds = inferred(model, reads.operands)
        known = {name: dim for dim, name in reads.symbols.names.items()}
        lacking = [is_tensor(kind) and shape_of(kind, known) is None for kind in kinds]
        if any(lacking) and (known or reads.sizes):
            numbers = inferred(model, reads.operands, sized=True)
            if reads.sizes or any(
                lack and shape_of(kind, {}) is not None
                for lack, kind in zip(lacking, numbers, strict=True)
            ):
                raise Refusal(_BY_SIZE)
        for i, value in enumerate(wanted):
            if kinds[i].WhichOneof("value") is None:
                kinds[i] = type_of(value)
            if kinds[i].WhichOneof("value") is None:
                raise Refusal(_UNKNOWN)
        return kinds

    def _emit(
        self,
        operator: str,
        model: onnx.ModelProto,
        reads: ReferenceReads,
        kinds: Sequence[onnx.TypeProto],
        name: str,
        why: str,
    ) -> tuple[Value, ...]:
        """Add the step; what is known and always the same is computed at once."""
        import onnx  # noqa: PLC0415

        build = self._build
        known = {spelled: dim for dim, spelled in reads.symbols.names.items()}
        plain = [(element_of(kind), shape_of(kind, known)) for kind in kinds]
        types = [None if shape is None else dtype for dtype, shape in plain]
        counts = list(dict.fromkeys(symbol for _, _, symbol, _ in reads.cuts))
        first = len(reads.values)
        op = OnnxReference(
            operator,
            base64.b64encode(model.SerializeToString(deterministic=True)).decode(),
            onnx.__version__,
            tuple(reads.types),
            tuple(types),
            tuple(
                () if dtype is None or shape is None else shape
                for dtype, (_, shape) in zip(types, plain, strict=True)
            ),
            tuple(-1 if dtype is not None else next(self._handles) for dtype in types),
            tuple(whole_dims(one) for one in reads.sizes),
            tuple(one.dtype for one in reads.sizes),
            tuple(one.shape for one in reads.sizes),
            tuple((i, axis, first + counts.index(s), f) for i, axis, s, f in reads.cuts),
            not draws(model.graph),
            why,
        )
        operands = [*reads.values, *(build.counts[symbol][1] for symbol in counts)]
        folded = self._folded(op, operands, name)
        if folded is not None:
            return folded
        results = tuple(
            build.value(name, dtype or DType.I64, shape)
            for dtype, shape in zip(op.results, op.shapes, strict=True)
        )
        build.held.update(
            (value, kind)
            for value, kind, dtype in zip(results, kinds, types, strict=True)
            if dtype is None
        )
        build.nodes.append(Node(op, tuple(operands), results, name))
        return results

    def _folded(
        self, op: OnnxReference, operands: Sequence[Value], name: str
    ) -> tuple[Value, ...] | None:
        arrays = [self._build.array(value) for value in operands]
        given = [array for array in arrays if array is not None]
        counts = [product(shape) for shape in op.shapes]
        small = all(isinstance(n, int) and n <= FOLD_ELEMENTS for n in counts)
        if not op.pure or op.sizes or not small or len(given) < len(arrays):
            return None
        self._done.append((op, name))
        each = zip(op.reference(*given), op.results, strict=True)
        return tuple(
            self._build.known(array, dtype, name) for array, dtype in each if dtype is not None
        )


def remedies(
    nodes: Iterable[onnx_ir.Node], imports: Mapping[str, int], *, allowed: bool
) -> dict[str, str]:
    """What could be done about nodes that are refused, by operator; nothing runs.

    Args:
        nodes: They.
        imports: Versions of the model's operator sets.
        allowed: Whether the reference implementation was allowed to do them, and could not.
    """
    remedy = _FIXED if allowed else _ALLOW
    # Inputs, constants and sequences that are outputs have no operators.
    found = dict.fromkeys(("(input)", "(initializer)", "(sequence)"), remedy)
    found["(input rank)"] = _RANK
    for node in nodes:
        operator = operator_of(node)
        if operator not in found:
            proto = _proto_of(node)
            there = proto is not None and has_reference(model_of(proto, [], imports))
            found[operator] = remedy if there else _NOTHING
    return found


def _proto_of(node: onnx_ir.Node) -> onnx.NodeProto | None:
    """The node as files have it; None where it, or one in its bodies, has a broken attribute."""
    import onnx_ir  # noqa: PLC0415 - warm starts need neither onnx nor onnx_ir

    try:
        return onnx_ir.serde.serialize_node(node)
    except onnx_ir.serde.SerdeError:
        return None


def _steps(nodes: Iterable[Node | BodyNode]) -> Iterator[tuple[OnnxReference, str]]:
    """All such steps and their names, those in bodies included."""
    for node in nodes:
        if isinstance(node.op, OnnxReference):
            yield node.op, node.name
        elif isinstance(node.op, BodyOp):
            for body in node.op.bodies:
                yield from _steps(body.nodes)


def _remarks(steps: Iterable[tuple[OnnxReference, str]], when: str = "") -> Iterator[str]:
    names: dict[tuple[str, str, str], list[str]] = {}
    for op, name in steps:
        names.setdefault((op.title, op.version, op.why), []).append(name)
    for (title, version, why), nodes in names.items():
        more = ", …" if len(nodes) > _NAMED else ""
        yield (
            f"{len(nodes)} {title} by ONNX's reference implementation (onnx {version}){when}: "
            f"{why}: {', '.join(nodes[:_NAMED])}{more}"
        )
