"""Objects laid flat without LLVM run as they do with it; what is unknown is left to LLVM."""

import ctypes
import struct

import pytest
from runtime_models import compiled, convolutions

from saccade.backends.cpu.codegen.compile import object_code
from saccade.backends.cpu.runtime.elf import Unknown, flatten
from saccade.backends.cpu.runtime.image import Image, map_image
from saccade.backends.cpu.runtime.linker import image_of, link
from saccade.backends.cpu.store.identity import machine_identity
from saccade.backends.cpu.target import host_target
from saccade.errors import CacheError

pytestmark = pytest.mark.skipif(machine_identity() is None, reason="x86-64 ELF only")

TEXT = """
target triple = "{triple}"
@table = internal constant [4 x i64] [i64 5, i64 7, i64 11, i64 13], align 64
declare ptr @memset(ptr, i32, i64)
define i64 @{name}_pick(i64 %i) {{
  %p = getelementptr [4 x i64], ptr @table, i64 0, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}}
define double @{name}_third(double %x) {{
  %y = fdiv double %x, 3.0
  ret double %y
}}
define void @{name}_fill(ptr %p, i64 %n) {{
  %r = call ptr @memset(ptr %p, i32 7, i64 %n)
  ret void
}}
"""
MUTABLE = """
target triple = "{triple}"
@state = global i64 3
define ptr @where() {{
  ret ptr @state
}}
"""
OUTSIDE = """
target triple = "{triple}"
@environ = external global i64
define ptr @where() {{
  ret ptr @environ
}}
"""


def code(text, **more):
    target = host_target()
    return object_code(text.format(triple=target.triple, **more), target)


@pytest.fixture(scope="module")
def objects():
    return [code(TEXT, name=name) for name in ("a", "b")]


def check(linked, name):
    pick = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(linked.addresses[f"{name}_pick"])
    assert [pick(i) for i in range(4)] == [5, 7, 11, 13]
    third = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(linked.addresses[f"{name}_third"])
    assert third(1.0) == 1.0 / 3.0
    fill = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64)(linked.addresses[f"{name}_fill"])
    memory = ctypes.create_string_buffer(8)
    fill(ctypes.cast(memory, ctypes.c_char_p), 5)
    assert memory.raw == b"\7" * 5 + b"\0" * 3


def test_constants_and_the_c_library_are_reached(objects):
    image = flatten(objects)
    assert image.imports == ("memset",) and len(image.symbols) == 6
    linked = [map_image(image), map_image(image)]
    assert len({one.addresses["a_pick"] for one in linked}) == 2, "each with memory of its own"
    for one in linked:
        check(one, "a")
        check(one, "b")


def test_an_image_is_the_same_wherever_it_is_mapped(objects):
    linked = link(objects, ["a_pick"])
    assert set(linked.addresses) == {"a_pick"} and image_of(objects) == flatten(objects)


@pytest.mark.parametrize("text", [MUTABLE, OUTSIDE])
def test_what_is_not_known_is_left_to_llvm(text):
    content = code(text)
    with pytest.raises(Unknown):
        flatten([content])
    linked = link([content], ["where"])
    assert image_of([content]) is None and linked.addresses["where"]


def test_other_machines_and_formats_are_left_to_llvm(objects):
    for at, value in ((0, 0), (4, 1), (5, 2), (16, 3), (18, 183)):
        content = bytearray(objects[0])
        content[at] = value
        with pytest.raises(Unknown):
            flatten([bytes(content)])
    for content in (b"", b"\xcf\xfa\xed\xfe" + bytes(100), objects[0][:500]):
        with pytest.raises(Unknown):
            flatten([content])
    with pytest.raises(Unknown, match="twice"):
        flatten([objects[0], objects[0]])


def relocations(content):
    """Where the kinds of an object's relocations are."""
    (at,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    for i in range(count):
        _, kind, _, _, offset, length = struct.unpack_from("<IIQQQQ", content, at + i * size)
        if kind == 4:
            yield from range(offset + 8, offset + length, 24)


def test_another_kind_of_relocation_is_refused(objects):
    places = list(relocations(objects[0]))
    assert len(places) >= 3
    for kind in (1, 9, 10, 11, 26, 41, 42):
        content = bytearray(objects[0])
        struct.pack_into("<I", content, places[0], kind)
        with pytest.raises(Unknown, match=f"type {kind}"):
            flatten([bytes(content)])


def test_a_function_that_the_c_library_lacks():
    with pytest.raises(CacheError, match="no_such_function"):
        map_image(Image(bytes(64), {}, 8, ("no_such_function",)))


def test_programs_are_laid_flat():
    engine = compiled(convolutions(), threads=1)._started()
    engine.program(((1, 3, 9, 9),), ())
    assert image_of(file.code for file in engine.backend.objects._known.values()) is not None


def test_kernels_lie_in_memory_once():
    # Without the disk, where other tests' kernels may be that two images prefer.
    engine = compiled(convolutions(), threads=1, cache=False)._started()
    first, second = (engine.program(((n, 3, 9, 9),), ())._linked for n in (1, 2))
    shared = first.addresses.keys() & second.addresses.keys()
    assert shared and all(first.addresses[name] == second.addresses[name] for name in shared)
