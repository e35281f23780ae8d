"""Run a prepared kernel of another processor: 64-bit Arm, under `qemu-user`.

A small C program loads memory, code and arguments from a file, plays the phases as `Prepared.run`
does, and writes the memory back. It needs Debian's packages `qemu-user` and
`gcc-aarch64-linux-gnu` (`available`).
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from saccade.ir import Array

__all__ = ["EmulatedRun", "available", "missing", "play"]

_TOOLS = "aarch64-linux-gnu-"
_MACHINE = "qemu-aarch64"

# The 64 bytes of a counter and the six words of a context are `COUNTER_WORDS` and `CONTEXT_WORDS`.
_PLAYER = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
typedef void (*kernel)(int64_t *, int64_t *);
static void get(void *to, size_t n, FILE *f) { if (n && fread(to, n, 1, f) != 1) exit(3); }
int main(int count, char **names) {
  FILE *f = fopen(names[1], "rb");
  int64_t head[3], fault[8] = {0}, phase = 0;
  get(head, sizeof head, f);
  int64_t phases = head[0], threads = head[1], bytes = head[2];
  int64_t *order = malloc(8 * threads);
  get(order, 8 * threads, f);
  char *memory = mmap(0, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  get(memory, bytes, f);
  int64_t bases[1] = {(int64_t)memory};
  for (; phase < phases && !fault[0]; phase++) {
    int64_t sizes[2];
    get(sizes, sizeof sizes, f);
    char *code = mmap(0, sizes[0], PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    get(code, sizes[0], f);
    __builtin___clear_cache(code, code + sizes[0]);
    int64_t *args = malloc(8 * sizes[1]);
    get(args, 8 * sizes[1], f);
    int64_t *counters = calloc(threads, 64);
    for (int64_t t = 0; t < threads && !fault[0]; t++) {
      int64_t context[] = {(int64_t)bases, (int64_t)counters, threads, order[t],
                           (int64_t)fault, 1};
      ((kernel)code)(args, context);
    }
  }
  fclose(f);
  f = fopen(names[1], "wb");
  int64_t played = phase - 1;
  fwrite(&played, 8, 1, f);
  fwrite(fault, 8, 3, f);
  fwrite(memory, 1, bytes, f);
  return fclose(f);
}
"""

# `volatile`, or the compiler would make of these loops calls of themselves.
_CALLED = """
void *memset(void *p, int c, unsigned long n) {
  volatile char *q = p;
  while (n--) *q++ = c;
  return p;
}
void *memcpy(void *p, const void *s, unsigned long n) {
  volatile char *q = p;
  const char *r = s;
  while (n--) *q++ = *r++;
  return p;
}
"""
"""What LLVM may call instead of writing a loop."""

_SCRIPT = """
SECTIONS {
  . = 0;
  .text : { *(.text .text.*) }
  .data : { *(.rodata .rodata.* .data .data.*) }
  /DISCARD/ : { *(.eh_frame .comment .note .note.*) }
}
"""


@dataclass(frozen=True, slots=True)
class EmulatedRun:
    """What is played.

    Attributes:
        codes: Object of each phase; its only function is at the start of its text.
        args: Argument words of each phase.
        memory: Contents of the arena.
        order: Logical threads, in the order in which they play.
    """

    codes: Sequence[bytes]
    args: Sequence[Array]
    memory: Array
    order: Sequence[int]


def available() -> bool:
    """Whether the emulator and the cross compiler are installed."""
    return not missing()


def missing() -> tuple[str, ...]:
    """The commands of the emulator and the cross compiler that are not installed."""
    needed = (f"{_TOOLS}gcc", f"{_TOOLS}ld", f"{_TOOLS}objcopy", _MACHINE)
    return tuple(command for command in needed if shutil.which(command) is None)


def play(job: EmulatedRun) -> tuple[int, tuple[int, int, int]]:
    """Play a job; its memory is changed in place.

    Returns:
        Index of the last phase played, and the fault: access, offset, length (0s for none).
    """
    tools = _tools()
    with tempfile.NamedTemporaryFile(dir=tools, suffix=".job") as file:
        words = [len(job.codes), len(job.order), job.memory.nbytes, *job.order]
        file.write(np.array(words, np.int64).tobytes() + job.memory.tobytes())
        for code, args in zip(job.codes, job.args, strict=True):
            image = _image(code)
            file.write(np.array([len(image), len(args)], np.int64).tobytes() + image)
            file.write(args.tobytes())
        file.flush()
        subprocess.run([_MACHINE, str(tools / "player"), file.name], check=True, timeout=120)
        found = Path(file.name).read_bytes()
    played, *fault = np.frombuffer(found[:32], np.int64).tolist()
    job.memory[:] = np.frombuffer(found, np.uint8, offset=32)
    return played, (fault[0], fault[1], fault[2])


@lru_cache(maxsize=1)
def _tools() -> Path:
    """A folder with the player and what images are linked with."""
    folder = Path(tempfile.mkdtemp(prefix="saccade-emulate-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "player.c").write_text(_PLAYER)
    (folder / "called.c").write_text(_CALLED)
    (folder / "script").write_text(_SCRIPT)
    # Static, as the emulator would have to find Arm's libraries otherwise.
    _call("gcc", "-O1", "-w", "-static", "-o", folder / "player", folder / "player.c")
    _call(
        "gcc", "-O1", "-w", "-ffreestanding", "-c", "-o", folder / "called.o", folder / "called.c"
    )
    return folder


@lru_cache(maxsize=256)
def _image(code: bytes) -> bytes:
    """The object at address 0, so that it runs at the start of any page."""
    tools = _tools()
    with tempfile.TemporaryDirectory(dir=tools) as name:
        folder = Path(name)
        (folder / "kernel.o").write_bytes(code)
        # The kernel first: the player calls what is at the image's beginning.
        objects = (folder / "kernel.o", tools / "called.o")
        _call(
            "ld",
            "--no-warn-rwx-segments",
            "-T",
            tools / "script",
            "-o",
            folder / "linked",
            *objects,
        )
        _call("objcopy", "-O", "binary", folder / "linked", folder / "image")
        return (folder / "image").read_bytes()


def _call(tool: str, *arguments: str | Path) -> None:
    subprocess.run([f"{_TOOLS}{tool}", *arguments], check=True)
