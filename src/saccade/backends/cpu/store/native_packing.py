"""Constants packed into memory by native code on all cores: all of it that a warm start needs.

The threads are plain ones: what `concurrent.futures` imports takes a warm start 8 ms.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from saccade.backends.cpu.runtime.workspace import HUGE_PAGE, fresh_block
from saccade.errors import OutOfMemoryError
from saccade.options import default_threads

if TYPE_CHECKING:
    from saccade.backends.cpu.store.packer_code import PackerCode
    from saccade.ir import Array
    from saccade.kernels.cpu.pack.panels_config import Panels

__all__ = ["Task", "allocate", "allocate_each", "parts", "side_by_side", "tasks_into"]

_PAGE = 4096  # bytes
_OWN_BLOCK = 4 << 20
"""Constants of so many bytes have memory of their own; it goes when they do."""
_ALONE = 1 << 17
"""Bytes that are packed before other threads have begun."""
_PART = 2 << 20
"""Bytes that a thread packs at a time, at least: a call takes as long as a tenth of that."""

Task = tuple[int, Callable[[], None]]
"""How large it is, in bytes, and what to call."""


def parts(panels: Panels) -> list[range]:
    """Panels that one thread packs at a time."""
    step = max(1, _PART // panels.panel_bytes)
    count = panels.count
    return [range(at, min(at + step, count)) for at in range(0, count, step)]


def tasks_into(target: Array, panels: Panels, source: Array, packers: PackerCode) -> list[Task]:
    """What there is to do for some panels of a constant.

    Args:
        target: The constant's memory.
        panels: What to pack.
        source: Bytes or elements of the constant's source, contiguous.
        packers: Code that is ready for these panels.
    """
    strides = panels.strides(panels.count)
    begin = target.ctypes.data + panels.start

    def do(part: range) -> None:
        packers.pack(panels, source, part, begin + part.start * strides[0], strides)

    return [(len(p) * panels.panel_bytes, partial(do, p)) for p in parts(panels)]


def allocate_each(sizes: Mapping[str, int]) -> dict[str, Array]:
    """Memory for constants of these sizes, each at the start of a page."""
    small = {name: nbytes for name, nbytes in sizes.items() if nbytes < _OWN_BLOCK}
    found = {name: allocate(nbytes) for name, nbytes in sizes.items() if name not in small}
    shared, at = allocate(sum(_up_to_page(nbytes) for nbytes in small.values())), 0
    for name, nbytes in small.items():
        found[name] = shared[at : at + nbytes]
        at += _up_to_page(nbytes)
    return found


def _up_to_page(nbytes: int) -> int:
    """Bytes of whole pages."""
    return -(-nbytes // _PAGE) * _PAGE


def allocate(nbytes: int) -> Array:
    """So many bytes from the start of a page on, of a huge one if there are enough.

    Raises:
        OutOfMemoryError: If the system does not give them.
    """
    try:
        block = fresh_block(nbytes + _PAGE)
    except (OSError, MemoryError) as error:
        raise OutOfMemoryError(
            f"packed weights take {nbytes} bytes of memory, which the system does not give: use a "
            "smaller model"
        ) from error
    unit = HUGE_PAGE if nbytes >= HUGE_PAGE else _PAGE
    start = -block.memory.ctypes.data % unit
    return block.memory[start : start + nbytes]


def side_by_side(tasks: Sequence[Task]) -> None:
    """Do all tasks on as many threads as there are cores, the largest first.

    Raises:
        Whatever one of them raises; the others are done or left out.
    """
    waiting = [do for _, do in sorted(tasks, key=lambda task: task[0])]
    failed: list[BaseException] = []

    def work() -> None:
        while waiting and not failed:
            try:
                do = waiting.pop()
            except IndexError:  # another thread took the last one
                return
            try:
                do()
            except BaseException as error:  # noqa: BLE001 - raised again by who waits
                failed.append(error)

    small = sum(nbytes for nbytes, _ in tasks) < _ALONE
    extra = 0 if small else min(default_threads(), len(tasks)) - 1
    helpers = [threading.Thread(target=work, name="saccade-pack") for _ in range(extra)]
    started = []
    try:
        for helper in helpers:
            helper.start()
            started.append(helper)
        work()
    except BaseException:
        waiting.clear()
        raise
    finally:
        for helper in started:
            helper.join()
    if failed:
        raise failed[0]
