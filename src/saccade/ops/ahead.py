"""Code of operators for a GPU, compiled where there is none and loaded where no compiler is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from saccade.backends.cuda.codegen.compile import decode_cubin, encode_cubin
from saccade.backends.cuda.gpus import gpu
from saccade.bundlefile import BundleHead, open_bundle, write_bundle
from saccade.errors import ModelError
from saccade.ops._cuda_library import Compiler, OfflineLibrary, cubins_of
from saccade.ops._places import compiling_for
from saccade.signature import Signature
from saccade.version import VERSION

__all__ = ["compile_ahead", "load_code"]

_DEVICE = "cuda operators"


@contextmanager
def compile_ahead(path: str | PathLike[str], machine: str, *, tf32: bool = False) -> Iterator[None]:
    """Compile what calls within the block would run on a GPU, and write it to a file at its end.

    The calls are made with tensors on `meta`, forward and backward as in use: these have shapes,
    dtypes and strides, which is all that code depends on. Another number of boxes takes the same
    code, but that few and many may take different kernels.

        with saccade.ops.compile_ahead("operators.saccade", "h200"):
            model.to("meta")(images.to("meta"))

    Args:
        path: The file, for `load_code`.
        machine: The GPU, as `saccade build --machine` has it.
        tf32: Whether products of float32 round their operands to TF32, as PyTorch's do with
            `torch.backends.cuda.matmul.allow_tf32`.

    Raises:
        OptionError: If there is no such GPU, or no kernel takes a call.
        CompileError: If there is no Triton.
        OSError: If the file cannot be written.
    """
    known = gpu(machine)
    cubins = cubins_of(known.arch)
    library = OfflineLibrary(Compiler(known, cubins, tf32=tf32))
    with compiling_for(library):
        yield
    entries = {cubins.portable_name(key): encode_cubin(c) for key, c in library.found.items()}
    made = {"arch": str(known.arch), "sources": cubins.sources}
    head = BundleHead(VERSION, _DEVICE, "", 1, (made,), Signature((), ()), (), "")
    write_bundle(Path(path), head, entries)


def load_code(path: str | PathLike[str]) -> int:
    """Take code from a file of `compile_ahead`, before anything is compiled; needs no GPU.

    Args:
        path: The file. It holds machine code: load what you trust.

    Returns:
        How many kernels it has.

    Raises:
        ModelError: If it is none, is damaged, or of another version.
    """
    file = open_bundle(Path(path))
    if file.head.device != _DEVICE:
        raise ModelError(f"{path}: a model's bundle, no code of operators")
    (made,) = file.head.machines or ({},)
    cubins = cubins_of(int(made.get("arch", "0")))
    if (file.head.saccade, made.get("sources")) != (VERSION, cubins.sources):
        raise ModelError(
            f"{path}: made by another version of Saccade ({file.head.saccade}) than this "
            f"({VERSION}): make it again"
        )
    codes = {}
    for name in file.names:
        found = decode_cubin(bytes(file.read(name)))
        if found is None:
            raise ModelError(f"{path}: entry {name} is no code")
        codes[name] = found
    cubins.carry(codes)
    return len(codes)
