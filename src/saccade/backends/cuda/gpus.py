"""Known GPUs: what plans for them are chosen by, from the vendor's data sheets unless said."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.errors import OptionError

__all__ = ["GPUS", "Gpu", "gpu", "machine_for", "nearest_gpu"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A described GPU.

    Attributes:
        name: What options and plans call it.
        product: The first words of what the driver calls it.
        arch: Compute capability times ten.
        multiprocessors: How many there are.
        shared: Bytes of shared memory that a program may have.
        flops: float32 operations per microsecond, without matrix units.
        matrix_flops: The same of dense float16 products that are summed in float32.
        bandwidth: Bytes per microsecond from and to memory.
        cached: The same from the L2 cache, as TMA reaches it.
        cache: Bytes of the L2 cache.
        memory: Bytes of memory, of the model that has least.
    """

    name: str
    product: str
    arch: int
    multiprocessors: int
    shared: int
    flops: float
    matrix_flops: float
    bandwidth: float
    cached: float
    cache: int
    memory: int


_ALL = (
    # Copy and 8192³ product as measured on one (4.24 TB/s, 677 TFLOP/s on random data). Both have
    # the same L2 cache, whose rate was fitted to convolutions on each; others' are estimates.
    Gpu("h200", "NVIDIA H200", 90, 132, 227 << 10, 67e6, 677e6, 4.24e6, 11.9e6, 50 << 20,
        140 << 30),
    Gpu("h100", "NVIDIA H100", 90, 132, 227 << 10, 67e6, 677e6, 3.0e6, 11.9e6, 50 << 20, 80 << 30),
    Gpu("a100", "NVIDIA A100", 80, 108, 163 << 10, 19.5e6, 312e6, 1.6e6, 4.5e6, 40 << 20, 40 << 30),
    Gpu("a10", "NVIDIA A10", 86, 72, 99 << 10, 31e6, 125e6, 0.5e6, 1.4e6, 6 << 20, 24 << 30),
    Gpu("l4", "NVIDIA L4", 89, 58, 99 << 10, 30e6, 121e6, 0.27e6, 0.76e6, 48 << 20, 24 << 30),
    Gpu("b200", "NVIDIA B200", 100, 148, 227 << 10, 75e6, 1800e6, 6.5e6, 18.2e6, 126 << 20,
        180 << 30),
    Gpu("rtx4090", "NVIDIA GeForce RTX 4090",
        89, 128, 99 << 10, 82e6, 165e6, 0.95e6, 2.7e6, 72 << 20, 24 << 30),
)  # fmt: skip
"""The first of an architecture is the one that is planned for where only that is known."""
GPUS = {one.name: one for one in _ALL}


def gpu(name: str) -> Gpu:
    """The GPU of this name.

    Raises:
        OptionError: If there is none.
    """
    found = GPUS.get(name) if isinstance(name, str) else None
    if found is None:
        raise OptionError(f"machine={name!r} is not one of {', '.join(GPUS)}")
    return found


def nearest_gpu(product: str, arch: int, multiprocessors: int) -> Gpu:
    """The description of a GPU that is there: its own, or that of the most similar one.

    Args:
        product: What the driver calls it.
        arch: Compute capability times ten.
        multiprocessors: How many it has.

    Raises:
        OptionError: If it is older than all that are known.
    """
    # With a space behind it, or an A100 would begin like an A10.
    words = f"{product} "
    named = [one for one in _ALL if words.startswith(f"{one.product} ") and one.arch == arch]
    if named:
        return max(named, key=lambda one: len(one.product))
    older = [one for one in _ALL if one.arch <= arch]
    if not older:
        raise OptionError(f"{product} (sm_{arch}) is older than sm_80, the first that is supported")
    newest = max(one.arch for one in older)
    alike = [one for one in older if one.arch == newest]
    return min(alike, key=lambda one: abs(one.multiprocessors - multiprocessors))


def machine_for(arch: str | None, machine: str | None) -> str:
    """The name of the GPU to build for, from the options of a command.

    Raises:
        OptionError: If they contradict each other, or name none.
    """
    if machine is not None:
        known = gpu(machine)
        if arch not in (None, f"sm_{known.arch}"):
            raise OptionError(f"--machine {machine} is sm_{known.arch}, not {arch}")
        return machine
    if arch is None:
        raise OptionError("say which GPU to build for: --arch sm_90, or --machine h200")
    found = next((one for one in _ALL if arch == f"sm_{one.arch}"), None)
    if found is None:
        kinds = sorted({f"sm_{one.arch}" for one in _ALL}, key=lambda text: int(text[3:]))
        raise OptionError(f"--arch {arch!r} is not one of {', '.join(kinds)}")
    return found.name
