"""Compiled objects to callable addresses: laid flat where that is possible, else by LLVM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from saccade.locks import forkless
from saccade.runtime.cpu.elf import Unknown, flatten
from saccade.runtime.cpu.image import Image, Linked, map_image

__all__ = ["Linked", "image_of", "link"]


def link(objects: Iterable[bytes], symbols: Iterable[str]) -> Linked:
    """Link relocatable objects and look the symbols up."""
    contents = list(objects)
    try:
        image = flatten(contents)
        linked = map_image(image)
    except (Unknown, OSError):  # LLVM has other ways to come by executable memory
        return _llvm_link(contents, symbols)
    return Linked(linked, {name: linked.addresses[name] for name in symbols}, image)


def image_of(objects: Iterable[bytes]) -> Image | None:
    """Relocatable objects as one image to keep; None where they cannot be laid flat."""
    try:
        return flatten(objects)
    except Unknown:
        return None


def _llvm_link(objects: Sequence[bytes], symbols: Iterable[str]) -> Linked:
    """The same for other machines and formats, in an engine of LLVM's."""
    with forkless:
        import llvmlite.binding as llvm  # noqa: PLC0415 - 40 ms; needed only to run

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for code in objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return Linked(engine, {name: engine.get_function_address(name) for name in symbols})
