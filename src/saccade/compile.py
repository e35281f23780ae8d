"""The pipeline, as a table of contents.

    lowered.begin           once a file, kept on disk; in a child process while this one imports
      frontend.onnx.load    reads, checks and normalises the file: the small IR
      passes.run            rewrites of `Device.passes`, those for all devices and its own
    Engine.program          once an input size, when the model is first called with it
      layout.assign         storage and kernels, chosen together
      plan.make             memory and the table of steps
      Backend.build         code, packed constants, a program
    Model                   takes the caller's arrays, finds the program of their shapes, runs it

Of all that a start needs only what no earlier one left: a model whose programs lie in the cache or
in a bundle starts no engine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Never, TypeAlias

from saccade.errors import NeedsValuesError
from saccade.locks import forkless, preload, preload_hooks
from saccade.shapes import ShapesArgument, frozen_shapes

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from saccade.engine import Engine
    from saccade.ir import Array
    from saccade.limits import Limits
    from saccade.model import Model
    from saccade.options import Options, Precision
    from saccade.processes import Processes

__all__ = ["DeviceName", "PrecisionName", "Source", "compile"]

Source: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto | onnx_ir.Model"
)
"""What a model is made of."""
DeviceName: TypeAlias = Literal["cpu", "cuda", "reference"]
PrecisionName: TypeAlias = Literal["fp32", "bf16", "fp16", "tf32"]
IsaName: TypeAlias = Literal["native", "amx", "avx512", "avx2"]
"""For checkers: what `devices.DEVICES`, `options.Precision` and the CPU's machines have."""


def compile(  # noqa: A001 - the name that users expect: saccade.compile
    source: Source,
    *,
    shapes: ShapesArgument | None = None,
    device: DeviceName = "cpu",
    precision: PrecisionName | Precision = "fp32",
    threads: int | None = None,
    exact: bool = False,
    allow_reference: bool = False,
    algorithms: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    cache: bool = True,
    checked: bool = False,
    isa: IsaName = "native",
    machine: str | None = None,
    **unknown: Never,
) -> Model:
    """Compile an ONNX model for this machine.

    Sizes that the file leaves open stay open: each new one is planned on its first call.

        model = saccade.compile("model.onnx")
        y = model(x)
        model = saccade.compile("fixed.onnx", shapes={"x": (1, 3, "H", "W")})

    Args:
        source: Path, bytes, `onnx.ModelProto` or `onnx_ir.Model`; or the path of a bundle that
            `Model.save` or `saccade build` wrote, which runs as it was built.
        shapes: Shapes of inputs, by name, in place of those that the file declares, before
            anything of it is refused. Integers fix axes, names and None leave them free: axes of
            one name are of one size, each None is of its own. Where the file writes a size out
            that another one comes for, it is an error here or at the first call.
        device: `cpu`, `cuda` (NVIDIA's GPUs), or `reference` (NumPy; slow, for comparisons).
        precision: `fp32`, or `bf16`: activations stored in bfloat16, sums in float32; on GPUs also
            `fp16` and `tf32`. On CPUs, fp16 files are computed in fp32.
        threads: Width of the team, at most 1024; as many as affinity and quota allow unless given.
        exact: Refuse algorithms that trade rounding for speed (Winograd, limbs of float32).
        allow_reference: Run what nothing here takes through ONNX's reference implementation:
            slowly, and on CPUs alone.
        algorithms: A file of tuned choices to take, in place of those that `Model.tune` kept.
        limits: How large and how slow things may become before they are refused.
        cache: Whether the caches on disk may be used.
        checked: Compile every load and store with a bounds check.
        isa: CPU instruction set, `amx`, `avx512`, `avx2` or `native`.
        machine: Plan as a machine would that the device describes: to look at or save, not to run.
        unknown: None; what is no option is refused with the name of the nearest one.

    Returns:
        A `Model`: call it on arrays, or ask for its `plan` or `profile`.

    Raises:
        ModelError: If the file is broken or hostile, or exceeds a bound of `Limits`.
        UnsupportedModelError: If the model uses what cannot be run; lists everything at once.
        OptionError: If there is no such option, or it makes no sense.
        InputError: If `shapes` do not fit the model's inputs.
    """
    preload("encodings.ascii")  # of notes about files

    chosen: dict[str, Any] = {
        "device": device, "precision": precision, "threads": threads, "exact": exact,
        "allow_reference": allow_reference, "algorithms": algorithms, "cache": cache,
        "checked": checked, "isa": isa, "machine": machine, **unknown,
    }  # fmt: skip
    if limits is not None:
        chosen["limits"] = limits
    if shapes is not None:
        chosen["shapes"] = frozen_shapes(shapes)
    model = _made(source, chosen)
    model.made_by = partial(compile, source, **chosen)
    return model


def _made(source: Any, chosen: dict[str, Any]) -> Model:  # noqa: ANN401
    # Imported here: `import saccade` costs those who want its errors or its CLI next to nothing,
    # and a start that finds a bundle needs no engine.
    with forkless:
        from saccade.bundled import bundle_at, bundled_model  # noqa: PLC0415
        from saccade.options import Options  # noqa: PLC0415

    bundle = bundle_at(source)  # before options are made: with one, defaults mean its own
    if bundle is not None:
        return bundled_model(bundle, **chosen)
    options = Options.make(**chosen)
    # First, as the digest reads the whole file: an interpreter starts meanwhile.
    early = _early(options, source)
    try:
        return _model(source, options, early)
    except NeedsValuesError as error:
        with forkless:
            from saccade.by_value import ByValueModel  # noqa: PLC0415 - few models need it
            from saccade.signature import Signature  # noqa: PLC0415
        signature = Signature.from_json(error.signature.encode())
        return ByValueModel(
            error.names, signature, partial(_model, source, options, []), sized=error.sized
        )


def _model(
    source: object,
    options: Options,
    early: list[Processes],
    known: Mapping[str, Array | tuple[int | None, ...]] | None = None,
) -> Model:
    """The model, with what was started early; values or shapes of inputs may be known."""
    with forkless:
        from saccade.devices import device_named  # noqa: PLC0415
        from saccade.frontend import onnx as frontend  # noqa: PLC0415
        from saccade.model import Model  # noqa: PLC0415

    digest = frontend.digest(source) if options.cache else None
    chosen = device_named(options.device)
    # By the device whose plans these are: `reference` shares them with the one that it plays.
    identity = _identity(digest, chosen.plans_for, options, known) if digest else None
    store = chosen.store(identity, options)

    def start() -> Engine:
        preload_hooks()
        with forkless:
            from saccade import lowered  # noqa: PLC0415
            from saccade.processes import Processes  # noqa: PLC0415

        processes = early.pop() if early else Processes()  # the loop below ends what is left
        ahead = partial(chosen.compiler, options)
        lower = lowered.begin(source, options, processes, identity, ahead, known)
        with forkless:
            from saccade.engine import Engine  # noqa: PLC0415 - 0.25 s, beside lowering

        return Engine(lower, options, processes, store, lasting=identity is not None)

    model = Model(start, chosen.arrays, store, options)
    while early:  # an earlier start left everything
        early.pop().close()
    return model


def _identity(
    digest: str,
    device: str,
    options: Options,
    known: Mapping[str, Array | tuple[int | None, ...]] | None = None,
) -> str:
    """What constants depend on; bounds of one's own must not be met by what was kept without."""
    bounds = "" if options.limits == type(options.limits)() else f"/{options.limits}"
    shapes = f"/shapes {options.shapes}" if options.shapes else ""
    given = "".join(
        f"/{name} {what}"
        if isinstance(what, tuple)
        else f"/{name} {what.dtype} {what.shape} {what.tobytes().hex()}"
        for name, what in (known or {}).items()
    )
    return (
        f"{digest}/{device}/{options.precision.value}{bounds}{_reference(options)}{shapes}{given}"
    )


def _reference(options: Options) -> str:
    """The reference implementation that answers may come from; no word where none may."""
    if not options.allow_reference:
        return ""
    with forkless:
        from importlib.metadata import version  # noqa: PLC0415 - `onnx` itself takes much longer

    return f"/reference {version('onnx')}"


def _early(options: Options, source: object) -> list[Processes]:
    """Children that preload while a file is digested, if it was never seen before."""
    with forkless:
        from saccade.frontend import onnx as frontend  # noqa: PLC0415

    # A file that was seen before has most likely left programs, which need no children.
    if not options.cache or frontend.seen(source):
        return []
    preload_hooks()
    preload("saccade.frontend.onnx.external")  # which digests need
    with forkless:
        from saccade.processes import Processes  # noqa: PLC0415 - a warm start needs none

    processes = Processes()
    processes.preload("saccade.opdefs", "saccade.lowered")
    return [processes]
