"""onnx-ir model -> Graph: walks the nodes in order and calls the importer of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from saccade import errors
from saccade.errors import ModelError, NeedsValuesError, UnsupportedModelError
from saccade.frontend.onnx.builder import Builder
from saccade.frontend.onnx.call import OnnxNode
from saccade.frontend.onnx.control_flow import ControlFlow
from saccade.frontend.onnx.ends import Ends
from saccade.frontend.onnx.functions import body_of, has_body
from saccade.frontend.onnx.importers import IMPORTERS
from saccade.frontend.onnx.importers.sequences import SEQUENCES
from saccade.frontend.onnx.listed import Result, TensorList
from saccade.frontend.onnx.probes import Known, free_shapes, needs_values, sized
from saccade.frontend.onnx.reference import ReferenceSteps, remedies
from saccade.frontend.onnx.reference_reads import reads_held
from saccade.frontend.onnx.refusal import MisfitError, Refusal
from saccade.frontend.onnx.schemas import fault
from saccade.frontend.onnx.survey import CONTROL_FLOW, Survey
from saccade.frontend.onnx.symbolic import Symbolic, is_static
from saccade.frontend.onnx.value_inputs import value_inputs
from saccade.ir import Array, Dim, Graph, Value
from saccade.limits import Deadline, Limits

if TYPE_CHECKING:
    import onnx_ir

    from saccade.frontend.onnx.specialise import Own

__all__ = ["lower"]

_TAKE_SEQUENCES = frozenset({"Identity", *SEQUENCES})
_MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, MemoryError, RecursionError)


def lower(
    model: onnx_ir.Model,
    array_of: Callable[[onnx_ir.TensorProtocol], Array],
    limits: Limits | None = None,
    deadline: Deadline | None = None,
    known: Mapping[str, Array | tuple[int | None, ...]] | None = None,
    *,
    allow_reference: bool = False,
    own: Own = MappingProxyType({}),
) -> Graph:
    """The small IR of a checked and normalised model.

    Args:
        model: From `normalise`.
        array_of: Reads an `onnx_ir` tensor.
        limits: What values may come to; the default ones if None.
        deadline: When to be done; `limits.seconds` from now if None.
        known: Of inputs by name: values, which become constants, or shapes.
        allow_reference: Whether ONNX's reference implementation may do what nothing else can.
        own: Sizes of the file that the inputs, as they are declared now, may not have.

    Raises:
        ModelError: If the model contradicts itself, or a value exceeds its bound.
        PlanError: After the deadline.
        UnsupportedModelError: If it uses what Saccade cannot run; lists everything.
        NeedsValuesError: If it could be run with other inputs' values, or sizes, known.
    """
    limits = limits or Limits()
    deadline = deadline or Deadline("importing the model", limits)

    def lowering(known: Known, *, reference: bool) -> _Lowering:
        build = Builder(limits)
        return _Lowering(model, array_of, build, deadline, known, reference=reference, own=own)

    with np.errstate(all="ignore"):  # folding computes what the file says, infinities included
        try:
            return sized(partial(lowering, reference=False), known or {})
        except UnsupportedModelError as error:
            if not allow_reference or isinstance(error, NeedsValuesError):
                raise
        # Only now: whatever runs without it runs as it would without the option.
        return sized(partial(lowering, reference=True), known or {})


class _Lowering(ControlFlow):
    """State of one import: what each ONNX value became, and which are behind unsupported nodes."""

    def __init__(
        self,
        model: onnx_ir.Model,
        array_of: Callable[[onnx_ir.TensorProtocol], Array],
        build: Builder,
        deadline: Deadline,
        known: Known,
        *,
        reference: bool,
        own: Own,
    ) -> None:
        super().__init__(build)
        self.own = own
        self.known = known
        self.model = model
        self.array_of = array_of
        self.deadline = deadline
        self.imports: Mapping[str, int] = model.opset_imports
        # Bodies of nodes are imported without: it takes the node as a whole.
        self.reference = ReferenceSteps(build, self.imports) if reference else None

    def run(self) -> Graph:
        graph = self.model.graph
        # Older files list initializers as inputs, too: they are constants all the same.
        given = [v for v in graph.inputs if v.name not in graph.initializers]
        ends = Ends(self.build, self.survey, self.known, self.reference, self.own)
        inputs = [(v, ends.input(v)) for v in given]
        self.found.update((v, value) for v, value in inputs if value is not None)
        self.lost.update(v for v, value in inputs if value is None)
        self._nodes(graph)
        # Before the rows are looked at: outputs may add some.
        known = [
            ends.absent(v) if v in self.absent else ends.output(v, self.found[v])
            for v in graph.outputs
            if v in self.found or v in self.absent
        ]
        if self.survey.rows:
            self._raise_unsupported()
        if len(known) != len(graph.outputs):
            raise ModelError("an output of the graph is made by nothing")
        names = [v.name or "" for v in graph.outputs]
        # Inputs with given values have become constants.
        present = [x for _, x in inputs if x is not None and x not in self.build.constants]
        made = self.build.graph(present, known, names, graph.name or "")
        return made if self.reference is None else self.reference.noted(made)

    def _raise_unsupported(self) -> NoReturn:
        allowed = self.reference is not None
        remedy = remedies(self.refused, self.imports, allowed=allowed)
        rows, graph = self.survey.table(remedy), self.model.graph
        names: tuple[str, ...] = ()
        # Known values help nodes; an input without a shape stays refused whatever its values are.
        if sum(map(len, self.survey.rows.values())) == len(self.refused):  # nodes, and nothing else
            names = value_inputs(graph, self.refused)
        # Values that are known already did not help.
        if self.known.keys() >= set(names):
            raise UnsupportedModelError(rows)
        raise self.needs(rows, names)

    def needs(
        self,
        rows: Sequence[errors.Unsupported],
        names: tuple[str, ...],
        *,
        sized: bool = False,
    ) -> UnsupportedModelError:
        """The error for a model that runs once more is known of its inputs."""
        held = self.reference is not None
        return needs_values(self.model.graph, rows, names, sized=sized, held=held)

    def lacks(self) -> bool:
        """Whether it met an operator that there is none for, whatever the sizes."""
        return any(
            (_domain(node.domain), node.op_type) not in IMPORTERS
            and node.op_type not in CONTROL_FLOW
            for node in self.refused
        )

    def free_shapes(self) -> dict[str, tuple[Dim, ...]]:
        """Inputs whose sizes are not known, and their shapes."""
        return free_shapes(self.model.graph, self.found, self.build.held)

    # -- nodes -----------------------------------------------------------------------------------

    def _nodes(self, graph: onnx_ir.Graph) -> None:
        for value in graph.initializers.values():
            if value.const_value is None:
                raise ModelError(f"initializer {value.name!r} has no data")
            if self.survey.is_numeric(value.const_value.dtype):
                array = self.array_of(value.const_value)
                self.found[value] = self.build.constant(array, value.name or "constant")
            # What nothing reads does no harm, whatever its type.
            elif not value.uses() and not value.is_graph_output():
                continue
            elif self.reference is not None:
                array = self.array_of(value.const_value)
                self.found[value] = self.reference.constant(array, value.name or "constant")
            else:
                reason = "initializers must be of a numeric type"
                dtype = str(value.const_value.dtype.name)
                self.survey.refuse("(initializer)", dtype, reason, value.name or "")
                self.lost.add(value)
        for node in graph:
            self.deadline.check()
            self._node(node)

    def _node(self, node: onnx_ir.Node) -> None:
        importer = IMPORTERS.get((_domain(node.domain), node.op_type))
        controlled = node.op_type in CONTROL_FLOW and not _domain(node.domain)
        if any(value in self.lost for value in node.inputs if value is not None):
            # Behind one that is refused, only operators are named that would be refused by
            # themselves.
            alone = importer is None and not controlled and not has_body(node, self._opset(node))
            if alone and self.reference is None:
                self._refuse(node, self.survey.why(node))
            self.lost.update(node.outputs)
            return
        # A body that was tried before, in another way, may have lost them.
        self.lost.difference_update(node.outputs)
        # No importer may take a handle for a number.
        if reads_held(node, self.found, self.build):
            self._refuse(node, "reads what no memory holds")
            return
        if importer is None and not controlled:
            self._refuse_unless_function(node)
            return
        call = self._call(node)
        self._check(node)
        try:
            if importer is None:
                self._controlled(call)
                return
            # Importers take what is absent for what a node left out.
            if _has_lists(call.given) and node.op_type not in _TAKE_SEQUENCES:
                raise Refusal("takes a sequence")
            results = importer(call)
        except Refusal as refusal:
            self._refuse_unless_function(node, str(refusal))
            return
        # Importers take attributes at their word; where that fails in NumPy, the file is wrong.
        except _MALFORMED as error:
            raise ModelError(f"{node.op_type} {call.name!r} is malformed: {error}") from None
        self._bind(node, results)

    def _check(self, node: onnx_ir.Node) -> None:
        """Raise for a node that does not fit its operator set."""
        wrong = None if _domain(node.domain) else fault(node, self._opset(node))
        if wrong is not None:
            raise ModelError(f"{node.op_type} {_name(node)!r} {wrong}")

    def _refuse_unless_function(self, node: onnx_ir.Node, reason: str | None = None) -> None:
        """Import what the standard makes a node of; refuse it if that is nothing, or refused, too.

        Args:
            node: What cannot be imported as it is.
            reason: Why; None for an operator without an importer.
        """
        operands = self._operands(node)
        # The types of sequences are not known to bodies that depend on types.
        lists = _has_lists(operands)
        body = None if lists else body_of(node, self._opset(node), _tensors(operands))
        if body is None:
            self._refuse(node, reason or self.survey.why(node))
            return
        self._check(node)
        function = body.function
        # The node may leave out operands at its end.
        for formal, operand in zip_longest(function.inputs, operands):
            if operand is None:
                self.absent.add(formal)
            else:
                self.found[formal] = operand
        nodes = len(self.refused)
        # What a body lacks is no row of its own: the user's file has the one node.
        outer, self.survey = self.survey, Survey()
        # A body names the operator sets that it is written for.
        imports, self.imports = self.imports, {**self.imports, **function.opset_imports}
        reference, self.reference = self.reference, None
        around, self.inlined = self.inlined, True
        try:
            for part in function:
                self.deadline.check()
                self._node(part)
            refused = self.survey.rows
        except ModelError as error:
            kind = MisfitError if isinstance(error, MisfitError) else ModelError
            raise kind(f"{node.op_type} {_name(node)!r}, made of others: {error}") from None
        finally:
            self.survey, self.imports, self.reference = outer, imports, reference
            self.inlined = around
            # Nodes of bodies are none that inputs' values could be looked for.
            del self.refused[nodes:]
        # The first row is enough: the user's file has one node there.
        if refused:
            (operator, _, why), *_ = refused
            self._refuse(node, reason or f"made of {operator}: {why}")
            return
        # A node may ask for fewer results than its operator has.
        made = zip(body.outputs, node.outputs, strict=False)
        pairs = [(inner, outer) for inner, outer in made if inner is not None]
        self._alias([inner for inner, _ in pairs], [outer for _, outer in pairs])

    def _refuse(self, node: onnx_ir.Node, reason: str) -> None:
        """Note a node that cannot be imported, unless ONNX's reference implementation takes it."""
        behind = any(value in self.lost for value in node.inputs if value is not None)
        if self.reference is not None and not behind and not self._needs_values(node):
            try:
                call = self._call(node)
                self.found.update(self.reference.node(call, self.found, reason))
                return
            except Refusal as refusal:
                reason = f"{reason}; {refusal}"
        first = next((self.found[v] for v in node.inputs if v in self.found), None)
        self.survey.refuse_node(node, reason, None if first is None else first.dtype)
        self.refused.append(node)
        self.lost.update(node.outputs)

    def _needs_values(self, node: onnx_ir.Node) -> bool:
        """Whether values of inputs, which are not known yet, would let kernels do a node."""
        return not self.known.keys() >= set(value_inputs(self.model.graph, [node]))

    def _call(self, node: onnx_ir.Node) -> OnnxNode:
        given, opset = self._operands(node), self._opset(node)
        return OnnxNode(node, _tensors(given), opset, self.build, self.array_of, given)

    def _operands(self, node: onnx_ir.Node) -> tuple[Result | None, ...]:
        operands: list[Result | None] = []
        for value in node.inputs:
            if value is None or value in self.absent:
                operands.append(None)
            elif value in self.found:
                operands.append(self.found[value])
            else:
                raise ModelError(
                    f"{node.op_type} {node.name!r} reads {value.name!r}, which nothing produces"
                )
        return tuple(operands)

    def _opset(self, node: onnx_ir.Node) -> int:
        imports = self.imports
        return node.version or imports.get(node.domain) or imports.get("") or 1

    def _bind(self, node: onnx_ir.Node, results: Sequence[Result | None]) -> None:
        for position, value in enumerate(node.outputs):
            if position < len(results):
                result = results[position]
                if result is None:
                    self.absent.add(value)
                else:
                    self.found[value] = self._settled(result, value.name or "")
            # Importers leave out optional results; where one is read, the node's body may have it.
            elif value.name and (value.uses() or value.is_graph_output()):
                self._refuse_unless_function(node, f"its output {position} is used")
                return

    def _settled(self, result: Result, name: str) -> Result:
        """Symbolic contents that turn out to be plain numbers become a constant."""
        if isinstance(result, Symbolic) and all(is_static(e) for e in result.elements()):
            array = result.array.astype(result.dtype.arithmetic.numpy)
            return self.build.known(array, result.dtype, name)
        return result

    def _alias(self, inner: Iterable[onnx_ir.Value], outer: Iterable[onnx_ir.Value]) -> None:
        for result, value in zip(inner, outer, strict=True):
            if result in self.found:
                self.found[value] = self.found[result]
            else:
                self.lost.add(value)


def _has_lists(given: Sequence[Result | None]) -> bool:
    return any(isinstance(one, TensorList) for one in given)


def _tensors(given: Sequence[Result | None]) -> tuple[Value | Symbolic | None, ...]:
    """What is given, sequences left out."""
    return tuple(None if isinstance(one, TensorList) else one for one in given)


def _name(node: onnx_ir.Node) -> str:
    """Of a node, for messages."""
    return node.name or (node.outputs[0].name if node.outputs else "") or ""


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
