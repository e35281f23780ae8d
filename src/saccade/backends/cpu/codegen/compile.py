"""LLVM IR to machine code: one optimised object per kernel, no absolute address in it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from saccade.backends.cpu.target import Target
from saccade.errors import CompileError
from saccade.locks import forkless

__all__ = ["assembly", "load_llvm", "object_code"]


@lru_cache(maxsize=1)
def load_llvm() -> Any:  # noqa: ANN401 - llvmlite carries no types
    """Llvmlite's binding, ready to compile."""
    with forkless:
        import llvmlite.binding as llvm  # noqa: PLC0415 - 40 ms; needed only where code is compiled

    # Kernels are written in the order that keeps their sums in registers; LLVM's scheduler hoists
    # loads past it and spills (a tile of a matrix product lost half of its speed to that).
    llvm.set_option("saccade", "-enable-misched=false")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


@lru_cache(maxsize=8)
def _machine(target: Target) -> Any:  # noqa: ANN401
    llvm = load_llvm()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small"
    )


def _optimised(ir_text: str, target: Target) -> tuple[Any, Any]:
    llvm = load_llvm()
    machine = _machine(target)
    try:
        module = llvm.parse_assembly(ir_text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"the emitted code is not valid LLVM IR: {error}") from error
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = _passes()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return module, machine


def _passes() -> Any:  # noqa: ANN401
    """What kernels need of LLVM: registers for variables, loops that test at their end, folding.

    They are written as the vector code that is wanted; the standard pipeline took six times as
    long for code of the same speed. Selecting instructions removes what is computed twice within a
    block, and moves what does not change out of loops that test at their end.
    """
    passes = load_llvm().create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_loop_rotate_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    return passes


def object_code(ir_text: str, target: Target) -> bytes:
    """A relocatable ELF object.

    Raises:
        CompileError: If the IR is invalid.
    """
    module, machine = _optimised(ir_text, target)
    return bytes(machine.emit_object(module))


def assembly(ir_text: str, target: Target) -> str:
    """The same code as text, to be read before guessing."""
    module, machine = _optimised(ir_text, target)
    return str(machine.emit_assembly(module))
