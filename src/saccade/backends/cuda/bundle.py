"""Models for GPUs in bundles: made where Triton is, run where it is not.

Entries: `plan/N`, a plan and the names of its phases' code, for the N-th set of input shapes;
`code/…`, machine code; `constant/…`, packed constants as they go to the GPU. What two plans share
is there once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from saccade.backends.cuda.beside import bodies_of
from saccade.backends.cuda.codegen.compile import Cubin, decode_cubin, encode_cubin
from saccade.backends.cuda.runtime.context import open_device
from saccade.backends.cuda.runtime.program import CudaProgram
from saccade.bundlefile import BundlePart
from saccade.errors import ModelError
from saccade.ir import Array
from saccade.plan import Plan
from saccade.signature import Signature

if TYPE_CHECKING:
    from saccade.bundlefile import BundleFile

__all__ = ["CudaBundle", "bundle_entries"]


def bundle_entries(
    plans: Iterable[tuple[Plan, Sequence[Cubin], Callable[[int], Array]]],
) -> dict[str, bytes]:
    """What a bundle holds of plans.

    Args:
        plans: Each with the code of its phases and a function that gives its packed constants.
    """
    entries: dict[str, bytes] = {}
    for number, (plan, codes, constant) in enumerate(plans):
        names = []
        for cubin in codes:
            content = encode_cubin(cubin)
            names.append(f"code/{hashlib.sha256(content).hexdigest()[:32]}")
            entries[names[-1]] = content
        each = zip(plan.whole_constants, plan.whole_constants_read, strict=True)
        for i, (one, read) in enumerate(each):
            name = f"constant/{one.key}"
            if read and name not in entries:
                entries[name] = np.ascontiguousarray(constant(i)).tobytes()
        entries[f"plan/{number}"] = json.dumps({"plan": plan.to_json(), "code": names}).encode()
    return entries


class CudaBundle:
    """A `saccade.program.Store` over a bundle; what it lacks cannot be made.

    Args:
        file: The open bundle.
    """

    def __init__(self, file: BundleFile) -> None:
        self._file = BundlePart(file, 0)
        # The same for all input shapes, whose programs share constants on the GPU.
        self._identity = f"{file.head.model}/{file.head.precision}"

    def signature(self) -> Signature:
        """What the model takes and gives."""
        return self._file.head.signature

    def keep_signature(self, signature: Signature) -> None:
        """It is there."""

    def graph_is_at(self, entry: str | None) -> None:
        """There is none."""

    def program(self, shapes: Sequence[Sequence[int]]) -> CudaProgram | None:
        """The program for these input shapes; None if there is none.

        Raises:
            ModelError: If it is damaged.
            DeviceError: If there is no GPU, or another one than it was made for.
        """
        wanted = tuple(tuple(shape) for shape in shapes)
        if wanted not in self._file.head.shapes:
            return None
        number = self._file.head.shapes.index(wanted)
        plan, codes = self._plan(f"plan/{number}")

        def constant(index: int) -> Array:
            # Packed already: type and shape are the kernels' business alone.
            content = self._file.read(f"constant/{plan.whole_constants[index].key}")
            return np.frombuffer(content, np.uint8)

        return CudaProgram(open_device(), plan, codes, constant, self._identity, bodies_of)

    def _plan(self, name: str) -> tuple[Plan, list[Cubin]]:
        try:
            fields: Mapping[str, object] = json.loads(bytes(self._file.read(name)))
            text, names = fields["plan"], fields["code"]
            if not isinstance(text, str) or not isinstance(names, list):
                raise TypeError(name)
            plan = Plan.from_json(text)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"entry {name} of the bundle is no plan of this version") from error
        known: dict[str, Cubin] = {}
        # Each once, as phases share code.
        for code in dict.fromkeys(map(str, names)):
            found = decode_cubin(bytes(self._file.read(code)))
            if found is None:
                raise ModelError(f"entry {code} of the bundle is no code")
            known[code] = found
        return plan, [known[str(code)] for code in names]
