"""Options of ONNX Runtime's sessions and runs."""

from __future__ import annotations

import os
from enum import IntEnum

from saccade.errors import OptionError
from saccade.logs import logger

__all__ = ["ExecutionMode", "GraphOptimizationLevel", "RunOptions", "SessionOptions"]

_DONE_ANYWAY = frozenset(
    {
        "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode",
        "graph_optimization_level", "inter_op_num_threads", "log_severity_level",
        "log_verbosity_level", "logid", "use_deterministic_compute",
    }
)  # fmt: skip
"""Attributes that say how, or what Saccade does whatever they say."""


class GraphOptimizationLevel(IntEnum):
    """How much a graph may be rewritten; Saccade always does all that keeps its meaning."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether branches of a graph run side by side; here each step is shared by all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class _Settings:
    """Attributes as ONNX Runtime's classes have them; any may be set."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def __setattr__(self, name: str, value: object) -> None:
        plain = name.startswith("_") or name in _DONE_ANYWAY or name == "intra_op_num_threads"
        # Scripts write out what is so anyway.
        if not plain and (not hasattr(self, name) or getattr(self, name) != value):
            logger().warning("%s.%s has no meaning here", type(self).__name__, name)
        super().__setattr__(name, value)

    def _add(self, key: str, value: str) -> None:
        logger().warning("%s: %s=%s has no meaning here", type(self).__name__, key, value)
        self._entries[key] = value

    def _get(self, key: str) -> str:
        if key not in self._entries:
            raise OptionError(f"{type(self).__name__} has no entry {key!r}")
        return self._entries[key]


class SessionOptions(_Settings):
    """Options of a session.

    Attributes:
        intra_op_num_threads: Width of the team; 0 is as many as the process may have.
        free_dimension_overrides: As `add_free_dimension_override_by_name` left them.
        denotation_overrides: As `add_free_dimension_override_by_denotation` left them.
        graph_optimization_level, execution_mode, log_severity_level, inter_op_num_threads, …:
            Accepted.
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    optimized_model_filepath: str = ""
    profile_file_prefix: str = "onnxruntime_profile_"
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, int] = {}
        self._denotations: dict[str, int] = {}

    @property
    def free_dimension_overrides(self) -> dict[str, int]:
        """Sizes by the names that files have for them."""
        return self._names

    @property
    def denotation_overrides(self) -> dict[str, int]:
        """Sizes by what files say that axes are, such as `DATA_BATCH`."""
        return self._denotations

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Fix a size that the file leaves open under this name."""
        self._names[name] = value

    def add_free_dimension_override_by_denotation(self, denotation: str, value: int) -> None:
        """Fix a size that the file leaves open for axes of this kind."""
        self._denotations[denotation] = value

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Accepted, with a warning."""
        self._add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """What `add_session_config_entry` was given.

        Raises:
            OptionError: If it was not.
        """
        return self._get(key)

    def add_initializer(self, name: str, ortvalue: object) -> None:
        """Refused: weights are those of the file.

        Raises:
            OptionError: Always.
        """
        del ortvalue
        raise OptionError(f"add_initializer: put {name!r} into the file, whose weights are taken")

    def register_custom_ops_library(self, path: str | os.PathLike[str]) -> None:
        """Refused: code for ONNX Runtime runs in it alone.

        Raises:
            OptionError: Always.
        """
        raise OptionError(
            f"register_custom_ops_library: {os.fspath(path)} is code for ONNX Runtime: export the "
            "model with operators of ONNX"
        )


class RunOptions(_Settings):
    """Options of a run: accepted."""

    only_execute_path_to_fetches: bool = False
    terminate: bool = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Accepted, with a warning."""
        self._add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """What `add_run_config_entry` was given.

        Raises:
            OptionError: If it was not.
        """
        return self._get(key)
