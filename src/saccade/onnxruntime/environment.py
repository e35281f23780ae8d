"""What ONNX Runtime's module sets for all sessions."""

from __future__ import annotations

from saccade.errors import OptionError
from saccade.logs import logger

__all__ = [
    "disable_telemetry_events",
    "enable_telemetry_events",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""Python's levels for ONNX Runtime's: verbose, info, warning, error, fatal."""


def set_default_logger_severity(severity: int) -> None:
    """Have the logger `saccade` say what is as severe as this: 0 (all) to 4 (fatal errors).

    Raises:
        OptionError: If it is none of them.
    """
    if severity not in range(len(_LEVELS)):
        raise OptionError(f"a severity is 0 to {len(_LEVELS) - 1}, not {severity!r}")
    logger().setLevel(_LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted: what is logged at all is no more verbose."""
    del verbosity


def set_seed(seed: int) -> None:
    """Accepted, with a warning: each run of a random operator draws its numbers anew."""
    logger().warning("set_seed(%r) has no meaning here", seed)


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None
) -> None:
    """Accepted: what a GPU needs is loaded when one is first used."""
    del cuda, cudnn, msvc, directory


def enable_telemetry_events() -> None:
    """Accepted: there are none."""


def disable_telemetry_events() -> None:
    """Accepted: there are none."""
