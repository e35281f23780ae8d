"""What the user may choose, as frozen values."""

from __future__ import annotations

import operator
import os
import re
from dataclasses import dataclass, field, fields
from enum import Enum
from numbers import Integral, Real
from pathlib import Path

from saccade.devices import DEVICES, device_named
from saccade.errors import OptionError, meant
from saccade.limits import Limits
from saccade.shapes import FrozenShapes, frozen_shapes

__all__ = [
    "MOST_THREADS",
    "Limits",
    "Options",
    "Precision",
    "cache_bytes",
    "cache_dir",
    "check_repeat",
    "check_seconds",
    "default_threads",
    "parse_bytes",
    "usable_path",
]


class Precision(Enum):
    """Arithmetic of the convolutions and matrix products.

    fp32 means fp32. bf16 and fp16 store activations in bfloat16 and float16 and sum in float32;
    what would lose too much stays float32, and the plan says what and why. tf32 rounds operands of
    products to 10 bits of mantissa and stores float32. GPUs have all of them, CPUs the first two.
    """

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    TF32 = "tf32"


MOST_THREADS = 1024
"""More than any machine has; a mistyped number must not use up all that a system can have."""

_CACHE_BYTES = 8 << 30
_MOST_RUNS = 1 << 20  # of a profile, which keeps the times of all of them
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that steers a compilation.

    Attributes:
        device: `cpu`, `cuda` (NVIDIA's GPUs), or `reference` (NumPy, for comparisons).
        precision: Arithmetic type; storage follows it.
        threads: Width of the team, at most `MOST_THREADS`; None takes `default_threads()`.
        exact: Refuse algorithms that trade rounding for speed (Winograd, limbs of float32).
        checked: Compile every load and store with a bounds check.
        isa: CPU instruction set, `amx`, `avx512`, `avx2` or `native`.
        cache: Whether the on-disk caches may be used.
        algorithms: A file of tuned choices to take, in place of those that `tune` kept.
        machine: Plan as a machine would that the device describes: to look at or save, not to run.
        limits: How large and how slow things may become before they are refused.
        allow_reference: Whether nodes that nothing else takes run through ONNX's own reference
            implementation (the package `onnx`): slowly, without bounds on time or memory, and
            marked in plans and profiles. CPUs only.
        shapes: Of inputs, in place of those that the file declares, before anything of it is
            refused: `{"x": (1, 3, "H", "W")}`, numbers, names of sizes that vary, or None for a
            size that varies by itself. Kept as pairs, sorted by name.

    Raises:
        OptionError: If one is of another type, or none of the values it may have.
    """

    device: str = "cpu"
    precision: Precision = Precision.FP32
    threads: int | None = None
    exact: bool = False
    checked: bool = False
    isa: str = "native"
    cache: bool = True
    algorithms: str | os.PathLike[str] | None = None
    machine: str | None = None
    limits: Limits = field(default_factory=Limits)
    allow_reference: bool = False
    shapes: FrozenShapes = ()
    resolved_threads: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.device not in list(DEVICES):  # of whatever type
            raise OptionError(f"device={self.device!r} is not one of {', '.join(DEVICES)}")
        for name, kind in _KINDS.items():
            given = getattr(self, name)
            if not isinstance(given, kind):
                raise OptionError(f"{name}={given!r} must be {_SPELLED[kind]}")
        if self.algorithms is not None:
            _check_file("algorithms", self.algorithms)
        object.__setattr__(self, "shapes", frozen_shapes(self.shapes))
        # NumPy's integers become Python's; to everybody else the class is frozen.
        object.__setattr__(self, "threads", _threads(self.threads))
        device = device_named(self.device)
        if self.precision.value not in device.precisions:
            given, kinds = self.precision.value, ", ".join(device.precisions)
            raise OptionError(f"precision={given!r} is not one of {kinds} on {self.device}")
        team = device.team(self.machine)  # which refuses machines, whatever the threads
        width = self.threads or team or default_threads()
        object.__setattr__(self, "resolved_threads", width)

    @classmethod
    def make(
        cls,
        device: str = "cpu",
        precision: str | Precision = "fp32",
        threads: int | None = None,
        exact: bool = False,
        **more: object,
    ) -> Options:
        """Options from the loosely typed arguments of `saccade.compile`.

        Raises:
            OptionError: If there is no such option, or it makes no sense.
        """
        # `resolved_threads` follows from the others, and is nobody's to choose.
        known = [one.name for one in fields(cls) if one.init]
        unknown = [name for name in more if name not in known]
        if unknown:
            near = meant(unknown[0], known)
            raise OptionError(
                f"there is no option {unknown[0]!r}{near}; there are {', '.join(known)}"
            )
        try:
            chosen = Precision(precision)
        except ValueError:
            kinds = ", ".join(p.value for p in Precision)
            raise OptionError(f"precision={precision!r} is not one of {kinds}") from None
        return cls(device=device, precision=chosen, threads=threads, exact=exact, **more)  # type: ignore[arg-type]


_KINDS: dict[str, type] = {
    "exact": bool, "checked": bool, "cache": bool, "allow_reference": bool, "isa": str,
    "precision": Precision, "limits": Limits,
}  # fmt: skip
_SPELLED: dict[type, str] = {
    bool: "True or False",
    str: "a string",
    Precision: "a Precision",
    Limits: "Limits(...)",
}


def _threads(given: object) -> int | None:
    """The width of the team: anything that counts as an integer, but for a bool."""
    if given is None:
        return None
    try:
        width = 0 if isinstance(given, bool) else operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        width = 0
    if not 1 <= width <= MOST_THREADS:
        raise OptionError(f"threads={given!r} must be an integer from 1 to {MOST_THREADS}, or None")
    return width


def _check_file(name: str, given: object) -> None:
    if not isinstance(given, str | os.PathLike) or usable_path(given) is None:
        raise OptionError(f"{name}={given!r} must be the path of a file")


def usable_path(given: object) -> Path | None:
    """A path that the file system could have; None for one with a NUL or half a character."""
    try:
        text = os.fspath(given)  # type: ignore[call-overload]
        encoded = os.fsencode(text)
    except (TypeError, UnicodeEncodeError):
        return None
    usable = isinstance(text, str) and b"\0" not in encoded
    return Path(text) if usable else None


def check_repeat(repeat: object) -> None:
    """Raise an `OptionError` where this is no number of runs of a profile."""
    whole = int(repeat) if isinstance(repeat, Integral) else 0
    # True would count as 1.
    if isinstance(repeat, bool) or not 1 <= whole <= _MOST_RUNS:
        raise OptionError(f"repeat must be an integer from 1 to {_MOST_RUNS}, is {repeat!r}")


def check_seconds(seconds: object) -> None:
    """Raise an `OptionError` where this is no time that something may take."""
    if seconds is None:
        return
    number = float(seconds) if isinstance(seconds, Real) else -1.0
    if isinstance(seconds, bool) or not number >= 0:  # NaN is not
        raise OptionError(f"seconds must be a number, 0 or more, is {seconds!r}")


def default_threads() -> int:
    """Number of threads that affinity and the cgroup quota allow, at least one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    # A quota of less than one CPU rounds down to 0.
    return max(1, min(allowed or 1, _cgroup_quota(allowed or 1)))


def _cgroup_quota(fallback: int) -> int:
    """CPU quota of this process's cgroup (v2, then v1), rounded down."""
    v2 = Path("/sys/fs/cgroup/cpu.max")
    quota_v1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
    period_v1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    try:
        if v2.exists():
            quota, period = v2.read_text().split()[:2]
        elif quota_v1.exists():
            quota, period = quota_v1.read_text().strip(), period_v1.read_text().strip()
        else:
            return fallback
        # `max` says in v2 what -1 says in v1: that there is none.
        return fallback if quota in ("max", "-1") else int(quota) // int(period)
    except (OSError, ValueError):
        return fallback


def cache_dir() -> Path:
    """Folder of the on-disk caches: `SACCADE_CACHE_DIR`, or the platform's user cache."""
    given = os.environ.get("SACCADE_CACHE_DIR")
    if given:
        return Path(given)
    from platformdirs import user_cache_path  # noqa: PLC0415 - 10 ms that most imports never need

    return user_cache_path("saccade")


def cache_bytes() -> int:
    """How many bytes the caches may take on disk: `SACCADE_CACHE_BYTES`, or 8 GiB.

    Raises:
        OptionError: If the variable is no size.
    """
    given = os.environ.get("SACCADE_CACHE_BYTES")
    if not given:
        return _CACHE_BYTES
    try:
        return parse_bytes(given)
    except OptionError as error:
        raise OptionError(f"SACCADE_CACHE_BYTES: {error}") from None


def parse_bytes(text: str) -> int:
    """Bytes from a text such as `500M`, `2GiB` or `1073741824`; units are powers of 1024.

    Raises:
        OptionError: If it is no such text.
    """
    # Few digits, and ASCII's: Python refuses to convert thousands of them.
    found = re.fullmatch(r"(\d{1,15})\s*([KMGT]?)(?:i?B)?", text.strip(), re.ASCII | re.IGNORECASE)
    if found is None:
        raise OptionError(f"{text!r} is not a size such as 500M, 2G or 1073741824")
    return int(found[1]) << _UNITS[found[2].upper()]
