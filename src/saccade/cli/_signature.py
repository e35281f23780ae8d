"""What a model file asks for, read without any engine, and inputs that fit it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.bundlefile import is_bundle, open_bundle
from saccade.cli._print import note
from saccade.cli._shapes import check_names, name_the_only
from saccade.errors import InputError, ModelError, OptionError
from saccade.shapes import ANY
from saccade.signature import shape_text

if TYPE_CHECKING:
    import onnx

    from saccade.cli._shapes import Asked
    from saccade.cli._types import Arrays, TensorInfoLike
    from saccade.shapes import Axis

__all__ = [
    "FILE_WAYS",
    "IMAGE_WAYS",
    "SCALED",
    "InputInfo",
    "check_fits",
    "fixed_shapes",
    "input_sets",
    "is_half",
    "load_file",
    "output_kinds",
    "program_shapes",
    "random_inputs",
    "read_inputs",
    "symbol_values",
    "weight_files",
]

SEED = 20240229
DEFAULT_BATCH = 1
DEFAULT_SIZE = 224
FILE_WAYS = "--shape gives the input another"
SCALED = "--preprocess scales images to it"
IMAGE_WAYS = f"{SCALED}, {FILE_WAYS}"
"""What could be done where a file does not fit."""
MOST_SETS = 4
"""Of inputs in turns, so that one of them does not stay in a GPU's cache."""


@dataclass(frozen=True, slots=True)
class InputInfo:
    """Name, NumPy dtype name, and shape (an int or a symbol's name per dimension) of one input."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    held: bool = False


def read_inputs(path: Path, axes: Asked = MappingProxyType({})) -> tuple[InputInfo, ...]:
    """The inputs of a model that have no default value, in order.

    Args:
        path: An ONNX file, or a bundle.
        axes: Shapes in place of those that it declares; a bundle's stay.

    Raises:
        ModelError: The file is missing, or neither.
        InputError: A shape is of another rank.
    """
    if is_bundle(path):
        inputs = open_bundle(path).head.signature.inputs
        return tuple(InputInfo(one.name, one.dtype, one.shape, one.held) for one in inputs)
    model = load_file(path)
    given = {initializer.name for initializer in model.graph.initializer}
    return tuple(
        _input_info(value, axes.get(value.name))
        for value in model.graph.input
        if value.name not in given
    )


def output_kinds(path: Path) -> list[np.dtype[Any]]:
    """The types of the outputs of an ONNX file, in order."""
    import onnx  # noqa: PLC0415

    kinds = (value.type.tensor_type.elem_type for value in load_file(path).graph.output)
    return [np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)) for kind in kinds]


def is_half(path: Path) -> bool:
    """Whether the file holds fp16 weights or takes fp16 inputs: its answers are that coarse."""
    if is_bundle(path):
        return any(one.dtype == "float16" for one in read_inputs(path))
    import onnx  # noqa: PLC0415

    half = onnx.TensorProto.FLOAT16
    graph = load_file(path).graph
    values = [value.type.tensor_type.elem_type for value in graph.input]
    return half in values or any(tensor.data_type == half for tensor in graph.initializer)


def load_file(path: Path) -> onnx.ModelProto:
    """An ONNX file without weights that lie elsewhere.

    Raises:
        ModelError: The file is missing or not ONNX.
        OptionError: It is a bundle.
    """
    import onnx  # noqa: PLC0415 - 0.1 s that `saccade --help` does not need
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    # With it comes typer, which the process of an engine, that draws inputs here, does without.
    from saccade.cli._options import existing_onnx  # noqa: PLC0415

    existing_onnx(path)
    try:
        # Whatever its suffix. Weights may be gigabytes, and nobody here looks at them.
        return onnx.load(str(path), format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise ModelError(f"{path} is not an ONNX file: {error}") from None


def weight_files(path: Path) -> list[Path]:
    """The files beside an ONNX file that its weights lie in; none of what is no ONNX file."""
    try:
        tensors = load_file(path).graph.initializer
    except (ModelError, OptionError):
        return []
    entries = (entry for tensor in tensors for entry in tensor.external_data)
    names = dict.fromkeys(entry.value for entry in entries if entry.key == "location")
    return [path.parent / name for name in names]


def _input_info(value: onnx.ValueInfoProto, axes: Sequence[Axis] | None) -> InputInfo:
    import onnx  # noqa: PLC0415

    tensor = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    shape = tuple(_size(value.name, axis, dim) for axis, dim in enumerate(tensor.shape.dim))
    if axes is not None:
        if tensor.HasField("shape") and len(shape) != len(axes):
            raise InputError(
                f"--shape: input {value.name!r} has {len(shape)} axes in the file, "
                f"given are {len(axes)}"
            )
        named = (f"{value.name}_dim_{i}" if a is None else a for i, a in enumerate(axes))
        shape = tuple(named)
    return InputInfo(value.name, np.dtype(dtype).name, shape)


def _size(name: str, axis: int, dim: onnx.TensorShapeProto.Dimension) -> int | str:
    """As `Model.inputs` has it: an axis of any size without a name is called after its place."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return dim.dim_value
    return f"{name}_dim_{axis}" if dim.dim_param in ANY else dim.dim_param


def fixed_shapes(
    inputs: Sequence[TensorInfoLike], given: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """A shape without symbols for every input; says on stderr which sizes it assumed.

    Args:
        inputs: Objects with name, dtype and shape, such as `Model.inputs`.
        given: Shapes that the user chose, by input name ("" where the model has one input).

    Raises:
        InputError: An unknown name, a shape that does not fit, or a dimension without default.
    """
    known = {info.name: info for info in inputs}
    if "" in given:
        given = name_the_only(given, inputs)
    check_names(given, inputs)
    for name, shape in given.items():
        check_fits(known[name], shape)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, info in known.items():
        if info.held:  # an object without a shape
            continue
        shapes[name] = given[name] if name in given else _default_shape(info)
        if name not in given and shapes[name] != tuple(info.shape):
            note(f"saccade: {name} has no fixed shape, assuming {shape_text(shapes[name])}")
    return shapes


def program_shapes(
    inputs: Sequence[TensorInfoLike], sets: Sequence[Mapping[str, tuple[int, ...]]]
) -> list[dict[str, tuple[int, ...]]]:
    """The same for each program of a command that makes several.

    Raises:
        InputError: The same; where inputs of one program may have been told apart, that as well.
    """
    try:
        return [fixed_shapes(inputs, one) for one in sets]
    except InputError as error:
        if len(sets) == 1:
            raise
        hint = "each --shape is a program of its own, whose inputs are separated by commas"
        raise InputError(f"{error} ({hint})") from None


def check_fits(info: TensorInfoLike, shape: tuple[int, ...], ways: str = "") -> None:
    """Raise `InputError` unless `shape` is one that the input `info` can take.

    Args:
        info: The input.
        shape: Of what is given.
        ways: What could be done where it has other sizes.
    """
    fits = len(shape) == len(info.shape) and all(
        isinstance(want, str) or want == have for want, have in zip(info.shape, shape, strict=True)
    )
    if not fits:
        given = f"{shape_text(shape)} does not fit"
        if ways and len(shape) == len(info.shape):
            given += f": {ways}"
        raise InputError(f"input {info.name!r} has shape {shape_text(info.shape)}, which {given}")


def _default_shape(info: TensorInfoLike) -> tuple[int, ...]:
    """Batch 1 and 224 by 224 pixels for images; anything else left open needs --shape."""
    shape = info.shape
    fixed = tuple(dim for dim in shape if isinstance(dim, int))
    if len(fixed) == len(shape):
        return fixed
    # Where channels are open, too, it may be no image at all.
    image = len(shape) == 4 and isinstance(shape[1], int)
    channels_first = len(shape) == 3 and isinstance(shape[0], int)
    if not image and not channels_first:
        raise InputError(
            f"input {info.name!r} has shape {shape_text(shape)}: "
            f"choose sizes with --shape {info.name}=…"
        )
    # 0 for channels: those are fixed where this is asked.
    defaults = (DEFAULT_BATCH, 0, DEFAULT_SIZE, DEFAULT_SIZE)[-len(shape) :]
    return tuple(
        dim if isinstance(dim, int) else default
        for dim, default in zip(shape, defaults, strict=True)
    )


def symbol_values(
    inputs: Sequence[TensorInfoLike], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """Each symbolic dimension's value at `shapes`.

    Raises:
        InputError: Two inputs give one symbol different values.
    """
    values: dict[str, int] = {}
    for info in inputs:
        for dim, size in zip(info.shape, shapes[info.name], strict=True):
            if isinstance(dim, str) and values.setdefault(dim, size) != size:
                raise InputError(f"{dim} cannot be both {values[dim]} and {size} ({info.name!r})")
    return values


def input_sets(inputs: Arrays, most: int) -> list[Arrays]:
    """These inputs, and further random ones like them: up to `most`, and not more than a few."""
    infos = [InputInfo(name, array.dtype.name, array.shape) for name, array in inputs.items()]
    shapes = {name: array.shape for name, array in inputs.items()}
    more = range(1, min(most, MOST_SETS))
    return [inputs, *(random_inputs(infos, shapes, number) for number in more)]


def random_inputs(
    inputs: Sequence[TensorInfoLike], shapes: Mapping[str, tuple[int, ...]], number: int = 0
) -> Arrays:
    """Standard normal data (integers: 0 to 9) that depend on the input's name and shape alone.

    Args:
        inputs: Objects with name and dtype.
        shapes: By name.
        number: Gives other data.
    """
    drawn: Arrays = {}
    for info in inputs:
        if info.held:
            raise InputError(
                f"input {info.name!r} is {info.dtype}, which no file here holds: use Python"
            )
        # Not `hash`: it differs between processes, and all engines need the same data.
        seeds = [SEED, zlib.crc32(info.name.encode()), *([number] if number else ())]
        generator = np.random.default_rng(seeds)
        dtype = np.dtype(info.dtype)
        shape = shapes[info.name]
        if dtype.kind == "b":
            drawn[info.name] = generator.integers(0, 2, size=shape).astype(bool)
        elif dtype.kind in "iu":
            drawn[info.name] = generator.integers(0, 10, size=shape).astype(dtype)
        else:
            drawn[info.name] = generator.standard_normal(shape).astype(dtype)
    return drawn
