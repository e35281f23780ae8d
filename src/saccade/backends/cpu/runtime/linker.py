"""Compiled objects to callable addresses: laid flat where that is possible, else by LLVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from saccade.backends.cpu.runtime.elf import Unknown, flatten
from saccade.backends.cpu.runtime.image import Image, Linked, map_image
from saccade.locks import Lock, forkless

__all__ = ["Linked", "SharedCode", "image_of", "link"]


class SharedCode:
    """Objects that are linked once and called by any number of programs; safe to call from threads.

    A kernel lies in memory once, however many programs call it.
    """

    def __init__(self) -> None:
        self._addresses: dict[str, int] = {}
        self._parts: list[Linked] = []
        self._lock = Lock()

    def link(self, objects: Mapping[str, bytes]) -> Linked:
        """Code of these functions, each with an object of its own."""
        with self._lock:
            fresh = {name: code for name, code in objects.items() if name not in self._addresses}
            if fresh:
                self._parts.append(link(fresh.values(), fresh))
                self._addresses |= self._parts[-1].addresses
            addresses = {name: self._addresses[name] for name in objects}
            return Linked(tuple(self._parts), addresses)


def link(objects: Iterable[bytes], symbols: Iterable[str]) -> Linked:
    """Link relocatable objects and look the symbols up."""
    contents = list(objects)
    try:
        linked = map_image(flatten(contents))
    except (Unknown, OSError):  # LLVM has other ways to come by executable memory
        return _llvm_link(contents, symbols)
    return Linked(linked, {name: linked.addresses[name] for name in symbols})


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
