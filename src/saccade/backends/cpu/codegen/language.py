"""The CPU kernel language: a thin, typed layer over `llvmlite.ir`.

A kernel is a Python function that takes a `KernelBuilder` builder and emits one LLVM function.
Structured control flow
is `with k.range(lo, hi, step) as i:`, `with k.when(condition):`; a Python `for` unrolls. Mutable
variables
(`k.var`) are allocas that LLVM promotes to registers. The vector width comes from the target.

Calling convention of every kernel: `void name(i64* args, i64* context)`.

    args     three words per pointer parameter (index into the table of bases, byte offset, length
    in bytes; for
             scratch the length is per thread), then one word per integer parameter (as many as it
             has elements for an array), in order of declaration: see `parameters`
    context  bases*, counters* (one of each thread), threads, logical thread, fault*, reach (of how
             many threads' shares of the chunks this one may claim, its own first)

In checked mode every access is compared with the length of the buffer that it belongs to; a
violation fills the
fault record (1 + access number, element offset, elements of the buffer) and the kernel returns.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.control import Var
from saccade.backends.cpu.codegen.emitter import BASES, BYTES, THREAD
from saccade.backends.cpu.codegen.matrix_tiles import MatrixTiles
from saccade.backends.cpu.codegen.memory import Ptr
from saccade.backends.cpu.codegen.parameters import Parameters
from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.backends.cpu.target import Target

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["KernelBuilder", "Ptr", "Var"]


Sizes = TypeVar("Sizes", bound="DataclassInstance")


class KernelBuilder(MatrixTiles):
    """Builds one kernel.

    Args:
        name: Symbol of the function.
        target: Machine to emit for.
        checked: Whether accesses are compared with their buffers.

    Attributes:
        scratches: Names of the buffers of which each thread has its own.
    """

    def __init__(self, name: str, target: Target, *, checked: bool = False) -> None:
        self.name, self.target, self.checked = name, target, checked
        self.lanes = target.lanes
        self.module = llvm.ir.Module(name)
        self.module.triple = target.triple
        signature = llvm.ir.FunctionType(llvm.ir.VoidType(), [llvm.POINTER, llvm.POINTER])
        self.function = llvm.ir.Function(self.module, signature, name)
        self.function.attributes.add("nounwind")
        for argument in self.function.args:
            argument.add_attribute("noalias")
        self._allocas = self.function.append_basic_block("allocas")
        self._body = self.function.append_basic_block("body")
        self.b: Any = llvm.ir.IRBuilder(self._body)
        self._entry: Any = llvm.ir.IRBuilder(self._allocas)
        self._words = 0
        self._pointers: list[str] = []
        self.scratches: set[str] = set()
        self._integers: dict[str, int | None] = {}
        self.accesses: list[str] = []
        args, context = self.function.args
        self._args, self._context = args, context
        self._bases = self._context_pointer(BASES)
        self.thread = Int(self.b, self._word(context, THREAD))

    def pointer(self, name: str, element: str = "float32") -> Ptr:
        """Declare a buffer parameter."""
        base, _ = self._buffer(name)
        length = Int(self.b, self._word(self._args, self._words - 1)) // BYTES[element]
        return Ptr(self, name, element, base, self.int(0), length if self.checked else None)

    def scratch(self, name: str, element: str = "float32") -> Ptr:
        """Declare this thread's scratch buffer."""
        self.scratches.add(name)
        base, per_thread = self._buffer(name)
        base = self.b.gep(base, [(self.thread * per_thread).value], source_etype=llvm.I8)
        length = per_thread // BYTES[element] if self.checked else None
        return Ptr(self, name, element, base, self.int(0), length)

    @property
    def parameters(self) -> Parameters:
        """What was declared, in order."""
        return Parameters(tuple(self._pointers), tuple(self._integers.items()))

    def _buffer(self, name: str) -> tuple[Any, Int]:
        assert name not in self._pointers, f"there are two buffers {name}"
        assert not self._integers, f"buffer {name} is declared after integers"
        self._pointers.append(name)
        index, offset, length = (self._word(self._args, self._words + i) for i in range(3))
        self._words += 3
        base = self.b.load(
            self.b.gep(self._bases, [index], source_etype=llvm.POINTER), typ=llvm.POINTER
        )
        return self.b.gep(base, [offset], source_etype=llvm.I8), Int(self.b, length)

    def integer(self, name: str) -> Int:
        """Declare an integer parameter."""
        self._declare(name, None)
        return self._integer()

    def array(self, name: str, count: int) -> tuple[Int, ...]:
        """Declare `count` integers under one name: a launch gives a tuple of them."""
        self._declare(name, count)
        return tuple(self._integer() for _ in range(count))

    def _declare(self, name: str, count: int | None) -> None:
        assert name not in self._integers, f"there are two integers {name}"
        self._integers[name] = count

    def _integer(self) -> Int:
        self._words += 1
        return Int(self.b, self._word(self._args, self._words - 1))

    def real(self, name: str) -> Vec:
        """Declare a parameter that is a float64: `calling.real_word` makes the launch's integer."""
        word = self.integer(name)
        return Vec(self.b, self.b.bitcast(word.value, llvm.ELEMENTS["float64"]))

    def integers(self, names: str) -> tuple[Int, ...]:
        """Declare several integer parameters, names separated by blanks."""
        return tuple(self.integer(name) for name in names.split())

    def sizes(self, kind: type[Sizes], prefix: str = "") -> Sizes:
        """Declare an integer parameter for each field of a dataclass of them, in their order."""
        return kind(*(self.integer(prefix + field.name) for field in fields(kind)))

    def finish(self) -> llvm.ir.Module:
        """Close the function and hand over the module."""
        if not self.b.block.is_terminated:
            self.b.ret_void()
        for block in self.function.blocks:
            if block.is_terminated or block is self._allocas:
                continue
            llvm.ir.IRBuilder(block).unreachable()
        self._entry.branch(self._body)
        return self.module
