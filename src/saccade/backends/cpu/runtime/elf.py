"""Relocatable ELF objects to one flat image that runs wherever it is mapped.

LLVM's kernels are position-independent and small: their sections need nothing but distances within
the image and calls of a few functions of the C library. Laid side by side, with those distances
filled in, they are plain bytes that can be kept on disk and started without LLVM. Whatever this
does not know (another machine, writable data, another kind of relocation) it refuses; `linker`
then leaves the objects to LLVM.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from saccade.backends.cpu.runtime.image import Image

__all__ = ["Unknown", "flatten"]

_ALIGN = 64  # bytes: a line of cache

_HEADER = struct.Struct("<4sBBBB8xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_RELATIVE = struct.Struct("<i")

# Numbers of the ELF format: files, sections, their flags, symbols, relocations.
_RELOCATABLE, _X86_64 = 1, 62
_PROGBITS, _SYMTAB, _RELA_TABLE, _UNWIND = 1, 2, 4, 0x70000001
_WRITE, _ALLOC, _THREAD_LOCAL = 0x1, 0x2, 0x400
_DATA_SYMBOL, _FUNCTION, _SECTION_SYMBOL = 1, 2, 3
_UNDEFINED = 0
_PC32, _PLT32 = 2, 4

_JUMP = b"\xff\x25"
"""`jmp *[rip + distance]`: to a function whose address is filled in when the image is mapped."""


class Unknown(Exception):  # noqa: N818 - not an error: the objects are LLVM's to link
    """The objects hold something that `flatten` does not know."""


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    data: bytes
    link: int
    info: int
    align: int


@dataclass
class _CodeImage:
    """The image under construction."""

    code: bytearray = field(default_factory=bytearray)
    symbols: dict[str, int] = field(default_factory=dict)
    calls: list[tuple[int, int, str]] = field(default_factory=list)
    """Calls of the C library: where the distance goes, the addend, whose."""

    def append(self, data: bytes, align: int) -> int:
        """Place some bytes; their offset."""
        self.code += bytes(-len(self.code) % max(align, 1))
        self.code += data
        return len(self.code) - len(data)

    def patch(self, at: int, distance: int) -> None:
        """Fill in a distance."""
        try:
            _RELATIVE.pack_into(self.code, at, distance)
        except struct.error as error:
            raise Unknown(f"a distance of {distance} at {at}") from error


def flatten(objects: Iterable[bytes]) -> Image:
    """One image of all objects, with the offsets of every symbol that they define.

    Raises:
        Unknown: If there is anything in them that has to be left to LLVM.
    """
    layout = _CodeImage()
    try:
        for content in objects:
            _add(layout, content)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Unknown(f"not an object of this machine: {error}") from error
    names = sorted({name for _, _, name in layout.calls})
    stubs = {name: layout.append(_JUMP + bytes(4), 8) for name in names}
    slots = layout.append(bytes(8 * len(names)), 8)
    for i, name in enumerate(names):
        layout.patch(stubs[name] + 2, slots + 8 * i - (stubs[name] + 6))
    for at, addend, name in layout.calls:
        layout.patch(at, stubs[name] + addend - at)
    return Image(bytes(layout.code), layout.symbols, slots, tuple(names))


def _add(layout: _CodeImage, content: bytes) -> None:
    sections = _sections(content)
    placed: dict[int, int] = {}
    for number, section in enumerate(sections):
        if _is_loaded(section):
            placed[number] = layout.append(section.data, max(section.align, _ALIGN))
    for section in sections:
        if section.kind == _SYMTAB:
            _define(layout, sections, section, placed)
        elif section.info in placed and section.kind == _RELA_TABLE:
            _relocate(layout, sections, section, placed)


def _sections(content: bytes) -> list[_Section]:
    magic, bits, order, *_, kind, machine, _, _, _, at, _, _, _, _, size, count, names = (
        _HEADER.unpack_from(content)
    )
    if (magic, bits, order, kind, machine) != (b"\x7fELF", 2, 1, _RELOCATABLE, _X86_64):
        raise Unknown("not an x86-64 ELF object")
    if size != _SECTION.size:
        raise Unknown("sections of another size")
    raw = [_SECTION.unpack_from(content, at + i * size) for i in range(count)]
    texts = content[raw[names][4] : raw[names][4] + raw[names][5]]
    found = []
    for name, kind, flags, _, offset, length, link, info, align, _ in raw:
        data = content[offset : offset + length] if kind == _PROGBITS or not flags & _ALLOC else b""
        found.append(_Section(_text(texts, name), kind, flags, data, link, info, align))
        if flags & _ALLOC and length and not (kind == _PROGBITS or _is_unwinding(found[-1])):
            raise Unknown(f"the section {found[-1].name} of type {kind:#x}")
        if kind == _PROGBITS and len(data) != length:
            raise Unknown("an object cut short")
    return found


def _is_unwinding(section: _Section) -> bool:
    """Tables for exceptions, which never pass through a kernel."""
    return section.kind == _UNWIND or section.name == ".eh_frame"


def _is_loaded(section: _Section) -> bool:
    if not section.flags & _ALLOC or not section.data or _is_unwinding(section):
        return False
    if section.flags & (_WRITE | _THREAD_LOCAL):
        raise Unknown(f"the writable section {section.name}")
    return True


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode("ascii")


def _define(
    layout: _CodeImage, sections: list[_Section], table: _Section, placed: dict[int, int]
) -> None:
    names = sections[table.link].data
    for name, info, _, section, value, _ in _SYMBOL.iter_unpack(table.data):
        if info >> 4 and section in placed:  # of the whole program, not of the object alone
            if info & 15 not in (_DATA_SYMBOL, _FUNCTION):
                raise Unknown(f"a symbol of type {info & 15}")
            text = _text(names, name)
            if text in layout.symbols:
                raise Unknown(f"{text} is defined twice")
            layout.symbols[text] = placed[section] + value


def _relocate(
    layout: _CodeImage, sections: list[_Section], table: _Section, placed: dict[int, int]
) -> None:
    symbols = sections[table.link]
    names = sections[symbols.link].data
    start, length = placed[table.info], len(sections[table.info].data)
    for offset, what, addend in _RELA.iter_unpack(table.data):
        kind = what & 0xFFFFFFFF
        name, info, _, section, value, _ = _SYMBOL.unpack_from(
            symbols.data, (what >> 32) * _SYMBOL.size
        )
        if kind not in (_PC32, _PLT32) or not 0 <= offset <= length - _RELATIVE.size:
            raise Unknown(f"a relocation of type {kind} at {offset}")
        at = start + offset
        if section == _UNDEFINED and kind == _PLT32:
            layout.calls.append((at, addend, _text(names, name)))
        elif section in placed and info & 15 in (0, _DATA_SYMBOL, _FUNCTION, _SECTION_SYMBOL):
            layout.patch(at, placed[section] + value + addend - at)
        else:
            raise Unknown(f"a relocation against section {section}")
