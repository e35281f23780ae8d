"""The CPU kernel language: a thin, typed layer over `llvmlite.ir`.

A kernel is a Python function that takes a `Kernel` builder and emits one LLVM function. Structured control flow
is `with k.range(lo, hi, step) as i:`, `with k.when(condition):`; a Python `for` unrolls. Mutable variables
(`k.var`) are allocas that LLVM promotes to registers. The vector width comes from the target.

Calling convention of every kernel: `void name(i64* args, i64* context)`.

    args     three words per pointer parameter (index into the table of bases, byte offset, length in bytes; for
             scratch the length is per thread), then one word per integer parameter, in order of declaration
    context  bases*, counter*, claim step, logical thread, fault*

In checked mode every access is compared with the length of the buffer that it belongs to; a violation fills the
fault record (1 + access number, element offset, elements of the buffer) and the kernel returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from saccade.codegen.target import Target
from saccade.codegen.values import I1, I32, I64, Bool, Int, IntLike, Mask, Vec, as_int

__all__ = ["CONTEXT_WORDS", "ELEMENTS", "Kernel", "Ptr", "Var"]

POINTER = ir.PointerType()
ELEMENTS: dict[str, Any] = {
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    "float16": ir.HalfType(),
    "int64": I64,
    "int32": I32,
    "int16": ir.IntType(16),
    "int8": ir.IntType(8),
    "uint8": ir.IntType(8),
    "bool": ir.IntType(8),
}
_BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1,
}  # fmt: skip
BASES, COUNTER, CLAIM_STEP, THREAD, FAULT = range(5)
CONTEXT_WORDS = 5


class Var:
    """A mutable variable; LLVM keeps it in a register."""

    __slots__ = ("_kind", "_slot", "b")

    def __init__(self, builder: Any, slot: Any, kind: type[Int] | type[Vec]) -> None:  # noqa: ANN401
        self.b, self._slot, self._kind = builder, slot, kind

    def get(self) -> Any:  # noqa: ANN401 - an Int or a Vec, as it was created
        """The current value."""
        return self._kind(self.b, self.b.load(self._slot, typ=self._slot.allocated_type))

    def set(self, value: Any) -> None:  # noqa: ANN401
        """Assign."""
        self.b.store(as_int(self.b, value).value if self._kind is Int else value.value, self._slot)


@dataclass(frozen=True, slots=True)
class Ptr:
    """A position in a buffer: `base` is the buffer, `offset` counts elements, `length` bounds them."""

    k: Kernel
    name: str
    element: str
    base: Any
    offset: Int
    length: Int | None

    def __add__(self, elements: IntLike) -> Ptr:
        return Ptr(self.k, self.name, self.element, self.base, self.offset + elements, self.length)

    def load(self, at: IntLike = 0) -> Vec:
        """One element, as a scalar `Vec`."""
        return self.k.load_scalar(self, at)

    def load_int(self, at: IntLike = 0) -> Int:
        """One integer element, sign- or zero-extended to 64 bits."""
        return self.k.load_int(self, at)

    def vec(self, at: IntLike = 0, mask: Mask | None = None, lanes: int | None = None) -> Vec:
        """Consecutive elements; masked lanes read as 0."""
        return self.k.load_vec(self, at, mask, lanes)

    def splat(self, at: IntLike = 0, lanes: int | None = None) -> Vec:
        """One element in every lane."""
        return self.k.broadcast(self.k.load_scalar(self, at), lanes)

    def store(self, value: Vec, at: IntLike = 0, mask: Mask | None = None) -> None:
        """Store a vector or a scalar; masked lanes stay untouched."""
        self.k.store(self, value, at, mask)


class Kernel:
    """Builds one kernel.

    Args:
        name: Symbol of the function.
        target: Machine to emit for.
        checked: Whether accesses are compared with their buffers.
    """

    def __init__(self, name: str, target: Target, *, checked: bool = False) -> None:
        self.name, self.target, self.checked = name, target, checked
        self.lanes = target.lanes
        self.module = ir.Module(name)
        self.module.triple = target.triple
        signature = ir.FunctionType(ir.VoidType(), [POINTER, POINTER])
        self.function = ir.Function(self.module, signature, name)
        self.function.attributes.add("nounwind")
        for argument in self.function.args:
            argument.add_attribute("noalias")
        self._allocas = self.function.append_basic_block("allocas")
        self._body = self.function.append_basic_block("body")
        self.b: Any = ir.IRBuilder(self._body)
        self._entry: Any = ir.IRBuilder(self._allocas)
        self._words = 0
        self.accesses: list[str] = []
        args, context = self.function.args
        self._args, self._context = args, context
        self._bases = self._context_pointer(BASES)
        self.thread = Int(self.b, self._word(context, THREAD))

    # Parameters

    def _word(self, pointer: Any, index: int) -> Any:  # noqa: ANN401
        address = self.b.gep(pointer, [ir.Constant(I64, index)], source_etype=I64)
        return self.b.load(address, typ=I64)

    def _context_pointer(self, index: int) -> Any:  # noqa: ANN401
        return self.b.inttoptr(self._word(self._context, index), POINTER)

    def pointer(self, name: str, element: str = "float32") -> Ptr:
        """Declare a buffer parameter."""
        base, _ = self._buffer()
        length = Int(self.b, self._word(self._args, self._words - 1)) // _BYTES[element]
        return Ptr(self, name, element, base, self.int(0), length if self.checked else None)

    def scratch(self, name: str, element: str = "float32") -> Ptr:
        """Declare this thread's scratch buffer."""
        base, per_thread = self._buffer()
        base = self.b.gep(base, [(self.thread * per_thread).value], source_etype=ir.IntType(8))
        length = per_thread // _BYTES[element] if self.checked else None
        return Ptr(self, name, element, base, self.int(0), length)

    def _buffer(self) -> tuple[Any, Int]:
        index, offset, length = (self._word(self._args, self._words + i) for i in range(3))
        self._words += 3
        base = self.b.load(self.b.gep(self._bases, [index], source_etype=POINTER), typ=POINTER)
        return self.b.gep(base, [offset], source_etype=ir.IntType(8)), Int(self.b, length)

    def integer(self, name: str) -> Int:
        """Declare an integer parameter."""
        del name
        self._words += 1
        return Int(self.b, self._word(self._args, self._words - 1))

    def integers(self, names: str) -> tuple[Int, ...]:
        """Declare several integer parameters, names separated by blanks."""
        return tuple(self.integer(name) for name in names.split())

    # Constants and variables

    def int(self, value: int) -> Int:
        """A literal integer."""
        return Int(self.b, ir.Constant(I64, value))

    def vector_type(self, lanes: int | None = None, element: str = "float32") -> Any:  # noqa: ANN401
        """LLVM vector type; a scalar type for one lane."""
        count = lanes or self.lanes
        return ELEMENTS[element] if count == 1 else ir.VectorType(ELEMENTS[element], count)

    def number(self, value: float, lanes: int | None = None, element: str = "float32") -> Vec:
        """A literal in every lane."""
        kind = self.vector_type(lanes, element)
        count = getattr(kind, "count", None)
        return Vec(self.b, ir.Constant(kind, value if count is None else [value] * count))

    def zero(self, lanes: int | None = None, element: str = "float32") -> Vec:
        """0 in every lane."""
        return self.number(0.0, lanes, element)

    def var(self, initial: Int | Vec | int) -> Var:
        """A mutable variable."""
        value = as_int(self.b, initial) if isinstance(initial, int) else initial
        slot = self._entry.alloca(value.value.type)
        variable = Var(self.b, slot, type(value))
        variable.set(value)
        return variable

    # Control flow

    @contextmanager
    def range(self, low: IntLike, high: IntLike, step: IntLike = 1) -> Iterator[Int]:
        """`for i in range(low, high, step)`, step positive; the body may be entered zero times."""
        head, body, end = (self.function.append_basic_block(n) for n in ("head", "loop", "end"))
        before = self.b.block
        self.b.branch(head)
        self.b.position_at_end(head)
        index = self.b.phi(I64)
        index.add_incoming(as_int(self.b, low).value, before)
        i = Int(self.b, index)
        self.b.cbranch((i < high).value, body, end)
        self.b.position_at_end(body)
        yield i
        following = i + step
        index.add_incoming(following.value, self.b.block)
        self.b.branch(head)
        self.b.position_at_end(end)

    @contextmanager
    def when(self, condition: Bool) -> Iterator[None]:
        """`if condition:`."""
        then, end = (self.function.append_basic_block(n) for n in ("then", "endif"))
        self.b.cbranch(condition.value, then, end)
        self.b.position_at_end(then)
        yield
        self.b.branch(end)
        self.b.position_at_end(end)

    @contextmanager
    def when_else(self, condition: Bool) -> Iterator[tuple[Any, Any]]:
        """`with k.when_else(c) as (then, other): with then: …; with other: …`."""
        blocks = [self.function.append_basic_block(n) for n in ("then", "else", "endif")]
        self.b.cbranch(condition.value, blocks[0], blocks[1])

        @contextmanager
        def side(block: Any) -> Iterator[None]:  # noqa: ANN401
            self.b.position_at_end(block)
            yield
            self.b.branch(blocks[2])

        yield side(blocks[0]), side(blocks[1])
        self.b.position_at_end(blocks[2])

    @contextmanager
    def chunks(self, count: Int) -> Iterator[Int]:
        """Claim chunks `0 … count-1` until none is left; every chunk runs exactly once over the team."""
        counter = self._context_pointer(COUNTER)
        step = self._word(self._context, CLAIM_STEP)
        head, body, end = (self.function.append_basic_block(n) for n in ("claim", "chunk", "done"))
        self.b.branch(head)
        self.b.position_at_end(head)
        chunk = Int(self.b, self.b.atomic_rmw("add", counter, step, "monotonic"))
        self.b.cbranch((chunk < count).value, body, end)
        self.b.position_at_end(body)
        yield chunk
        self.b.branch(head)
        self.b.position_at_end(end)

    # Memory

    def _address(self, p: Ptr, at: IntLike, extent: Int | int) -> Any:  # noqa: ANN401
        offset = p.offset + at
        if self.checked and p.length is not None:
            self._check(p, offset, as_int(self.b, extent))
        return self.b.gep(p.base, [offset.value], source_etype=ELEMENTS[p.element])

    def _check(self, p: Ptr, offset: Int, extent: Int) -> None:
        assert p.length is not None
        inside = (offset >= 0) & (offset + extent <= p.length)
        # A masked access of no lanes may stand anywhere.
        allowed = inside | extent.equals(0)
        with self.when(~allowed):
            self.accesses.append(p.name)
            fault = self._context_pointer(FAULT)
            for word, value in enumerate((self.int(len(self.accesses)), offset, p.length)):
                self.b.store(
                    value.value, self.b.gep(fault, [ir.Constant(I64, word)], source_etype=I64)
                )
            self.b.ret_void()
            self.b.position_at_end(self.function.append_basic_block("unreachable"))

    def load_scalar(self, p: Ptr, at: IntLike = 0) -> Vec:
        """One element."""
        return Vec(self.b, self.b.load(self._address(p, at, 1), typ=ELEMENTS[p.element]))

    def load_int(self, p: Ptr, at: IntLike = 0) -> Int:
        """One integer element as 64 bits."""
        value = self.b.load(self._address(p, at, 1), typ=ELEMENTS[p.element])
        if p.element == "int64":
            return Int(self.b, value)
        widen = self.b.zext if p.element in ("uint8", "bool") else self.b.sext
        return Int(self.b, widen(value, I64))

    def load_vec(
        self, p: Ptr, at: IntLike = 0, mask: Mask | None = None, lanes: int | None = None
    ) -> Vec:
        """Consecutive elements."""
        count = lanes or self.lanes
        kind = self.vector_type(count, p.element)
        if mask is None or count == 1:
            address = self._address(p, at, count)
            return Vec(self.b, self.b.load(address, typ=kind, align=_BYTES[p.element]))
        address = self._address(p, at, self._extent(mask, count))
        load = self._intrinsic(
            f"llvm.masked.load.v{count}{_suffix(p.element)}.p0",
            kind,
            [POINTER, I32, ir.VectorType(I1, count), kind],
        )
        align = ir.Constant(I32, _BYTES[p.element])
        zero = ir.Constant(kind, [0.0 if "float" in p.element else 0] * count)
        return Vec(self.b, self.b.call(load, [address, align, mask.value, zero]))

    def store(self, p: Ptr, value: Vec, at: IntLike = 0, mask: Mask | None = None) -> None:
        """Store consecutive elements."""
        count = value.lanes
        if mask is None or count == 1:
            self.b.store(value.value, self._address(p, at, count), align=_BYTES[p.element])
            return
        address = self._address(p, at, self._extent(mask, count))
        store = self._intrinsic(
            f"llvm.masked.store.v{count}{_suffix(p.element)}.p0",
            ir.VoidType(),
            [value.type, POINTER, I32, ir.VectorType(I1, count)],
        )
        align = ir.Constant(I32, _BYTES[p.element])
        self.b.call(store, [value.value, address, align, mask.value])

    def _extent(self, mask: Mask, lanes: int) -> IntLike:
        if mask.count is None:
            return lanes  # an arbitrary mask: the whole vector must lie inside
        return (mask.count < lanes).select(mask.count, lanes)

    def pick(self, condition: Bool, then: Ptr, other: Ptr) -> Ptr:
        """One of two positions, possibly in different buffers."""
        base = self.b.select(condition.value, then.base, other.base)
        offset = condition.select(then.offset, other.offset)
        length = None
        if then.length is not None and other.length is not None:
            length = condition.select(then.length, other.length)
        return Ptr(self, f"{then.name}|{other.name}", then.element, base, offset, length)

    def prefetch(self, p: Ptr, at: IntLike = 0) -> None:
        """Ask for the cache line of an element (never faults)."""
        address = self.b.gep(p.base, [(p.offset + at).value], source_etype=ELEMENTS[p.element])
        fetch = self._intrinsic("llvm.prefetch.p0", ir.VoidType(), [POINTER, I32, I32, I32])
        self.b.call(fetch, [address, *(ir.Constant(I32, v) for v in (0, 3, 1))])

    # Vectors

    def broadcast(self, scalar: Vec, lanes: int | None = None) -> Vec:
        """A scalar in every lane."""
        count = lanes or self.lanes
        if count == 1:
            return scalar
        kind = ir.VectorType(scalar.type, count)
        one = self.b.insert_element(
            ir.Constant(kind, ir.Undefined), scalar.value, ir.Constant(I32, 0)
        )
        zeros = ir.Constant(ir.VectorType(I32, count), [0] * count)
        return Vec(self.b, self.b.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros))

    def shuffle(self, first: Vec, second: Vec, order: Sequence[int]) -> Vec:
        """Lanes picked from the concatenation of two vectors."""
        lanes = ir.Constant(ir.VectorType(I32, len(order)), list(order))
        return Vec(self.b, self.b.shuffle_vector(first.value, second.value, lanes))

    def extract(self, vector: Vec, lane: int) -> Vec:
        """One lane as a scalar."""
        if not isinstance(vector.type, ir.VectorType):
            return vector
        return Vec(self.b, self.b.extract_element(vector.value, ir.Constant(I32, lane)))

    def insert(self, vector: Vec, scalar: Vec, lane: int) -> Vec:
        """The vector with one lane replaced."""
        if vector.lanes == 1:
            return scalar
        at = ir.Constant(I32, lane)
        return Vec(self.b, self.b.insert_element(vector.value, scalar.value, at))

    def fma(self, a: Vec, b: Vec, c: Vec) -> Vec:
        """`a · b + c`, rounded once."""
        return self.call("fma", a, b, c)

    def maximum(self, a: Vec, b: Vec | float) -> Vec:
        """The larger; NaN in `a` gives NaN where the target's instruction does so (operands in that order)."""
        other = b if isinstance(b, Vec) else a.like(b)
        return a.compare("<", other).select(other, a)

    def minimum(self, a: Vec, b: Vec | float) -> Vec:
        """The smaller; NaN in `a` stays NaN."""
        other = b if isinstance(b, Vec) else a.like(b)
        return a.compare(">", other).select(other, a)

    def call(self, intrinsic: str, *operands: Vec) -> Vec:
        """An element-wise LLVM intrinsic such as `fma`, `sqrt`, `fabs`, `floor`, `ceil`, `rint`, `copysign`."""
        kind = operands[0].type
        name = f"llvm.{intrinsic}.{_type_suffix(kind)}"
        function = self._intrinsic(name, kind, [kind] * len(operands))
        return Vec(self.b, self.b.call(function, [o.value for o in operands]))

    def first(self, count: Int, lanes: int | None = None) -> Mask:
        """The mask of the first `count` lanes (all when `count` is larger, none when not positive)."""
        n = lanes or self.lanes
        iota = ir.Constant(ir.VectorType(I32, n), list(range(n)))
        capped = (count < n).select(count, n)
        floor = (capped > 0).select(capped, 0)
        narrow = self.b.trunc(floor.value, I32)
        kind = ir.VectorType(I32, n)
        one = self.b.insert_element(ir.Constant(kind, ir.Undefined), narrow, ir.Constant(I32, 0))
        limit = self.b.shuffle_vector(
            one, ir.Constant(kind, ir.Undefined), ir.Constant(kind, [0] * n)
        )
        return Mask(self.b, self.b.icmp_signed("<", iota, limit), floor)

    def sum_lanes(self, vector: Vec) -> Vec:
        """Horizontal sum by halves (a fixed order)."""
        while vector.lanes > 1:
            half = vector.lanes // 2
            low = self.shuffle(vector, vector, range(half))
            high = self.shuffle(vector, vector, range(half, 2 * half))
            if half == 1:
                return self.extract(low, 0) + self.extract(high, 0)
            vector = low + high
        return vector

    def _intrinsic(self, name: str, result: Any, operands: list[Any]) -> Any:  # noqa: ANN401
        known = self.module.globals.get(name)
        return known or ir.Function(self.module, ir.FunctionType(result, operands), name)

    def minimum_int(self, a: Int, b: IntLike) -> Int:
        """The smaller integer."""
        return (a < b).select(a, b)

    def maximum_int(self, a: Int, b: IntLike) -> Int:
        """The larger integer."""
        return (a > b).select(a, b)

    def finish(self) -> ir.Module:
        """Close the function and hand over the module."""
        if not self.b.block.is_terminated:
            self.b.ret_void()
        for block in self.function.blocks:
            if block.is_terminated or block is self._allocas:
                continue
            ir.IRBuilder(block).unreachable()
        self._entry.branch(self._body)
        return self.module


def _suffix(element: str) -> str:
    return {"float32": "f32", "float64": "f64", "float16": "f16"}.get(
        element, f"i{8 * _BYTES[element]}"
    )


def _type_suffix(kind: Any) -> str:  # noqa: ANN401
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_type_suffix(kind.element)}"
    return {"float": "f32", "double": "f64", "half": "f16"}.get(str(kind), str(kind))
