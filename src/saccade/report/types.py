"""A report: everything that its page shows, as plain data.

Times of steps are in microseconds, those of whole runs in milliseconds. Texts that come from a file
are escaped (`printable`). `Report.from_json` reads back what `to_json` wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TypeAlias

from saccade.kernels.machine import Machine
from saccade.locks import forkless
from saccade.profile import Shares
from saccade.report.decode import MalformedError, decode

__all__ = [
    "FORMAT",
    "About",
    "Advice",
    "ArenaBlock",
    "ImportedNode",
    "Percentiles",
    "Refused",
    "Report",
    "ReportStep",
    "TensorPlace",
    "Totals",
]

FORMAT = 2
"""Of the data; no other is read."""

Span: TypeAlias = tuple[float, float]
"""Start and end, in microseconds from the start of the run."""
Cell: TypeAlias = int | float | str


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """An operand or a result of a step.

    Attributes:
        dtype: Element type.
        shape: Dims in ONNX's order.
        layout: How they are stored: `NHWC`, `NCHW`, `row-major`, ….
        where: The memory that it lies in.
        nbytes: From the first byte to the last.
    """

    dtype: str
    shape: tuple[int, ...]
    layout: str
    where: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A kernel that a step could have, or not, and does not.

    Attributes:
        kernel: Its name; empty where no kernel was asked.
        reason: Why not.
        estimate: Microseconds by its own estimate; None if it does not take the call.
        measured: Microseconds of its fastest variant that was ever measured; None if none was.
    """

    kernel: str
    reason: str
    estimate: float | None
    measured: float | None


@dataclass(frozen=True, slots=True)
class ReportStep:
    """A step of the plan, and what it took.

    Attributes:
        name: The node that it came from.
        op: Operator, as plans call it.
        attributes: Of the operator, as text.
        kernel: What computes it.
        config: Of its first phase.
        host: Whether it runs in NumPy.
        tuned: Whether its kernel was chosen by a measurement.
        contracts: Whether its work is sums of products.
        reorder: Whether it only moves a value into another storage.
        note: Anything else of it, such as why a copy is there.
        estimate: What selection expected.
        time: Measured; 0 for what has nothing to run.
        phases: The same of each phase.
        chunks: Into how many pieces of work each phase is cut.
        busy: Share of that time that the threads worked, 0 to 1.
        flops, bytes: What the operator needs at least.
        least_flops: Operations of the cheapest algorithm that rounds more; None if there is none.
        floor: What the machine needs for them at least.
        inputs, outputs: Operands and results.
        reads: The steps that made the operands; -1 - i for input i of the model.
        refused: Other kernels.
        facts: Of the code of each phase.
        spans: Of one run, for each phase the time of each thread.
        bodies: How many graphs there are inside of it.
    """

    name: str
    op: str
    attributes: str
    kernel: str
    config: str
    host: bool
    tuned: bool
    contracts: bool
    reorder: bool
    note: str
    estimate: float
    time: float
    phases: tuple[float, ...]
    chunks: tuple[int, ...]
    busy: float
    flops: int
    bytes: int
    least_flops: float | None
    floor: float
    inputs: tuple[TensorPlace, ...]
    outputs: tuple[TensorPlace, ...]
    reads: tuple[int, ...]
    refused: tuple[Refused, ...]
    facts: tuple[Mapping[str, Cell], ...]
    spans: tuple[tuple[Span, ...], ...]
    bodies: int

    @property
    def lost(self) -> float:
        """Microseconds above the floor."""
        return max(0.0, self.time - self.floor)


@dataclass(frozen=True, slots=True)
class ArenaBlock:
    """Bytes of the arena that are in use for some steps.

    Attributes:
        label: Who writes them.
        kind: `value` or `workspace`.
        offset, nbytes: Where.
        first, last: The steps that they are in use for, both included.
        values: How many values lie there side by side.
    """

    label: str
    kind: str
    offset: int
    nbytes: int
    first: int
    last: int
    values: int


@dataclass(frozen=True, slots=True)
class ImportedNode:
    """A node of the graph as it was read, before anything was fused.

    Attributes:
        name: Of the node in the file.
        op: Operator.
        attributes: Of the operator, as text.
        dtype, shape: Of its first result.
        reads: The nodes that made its operands; -1 - i for input i of the model.
        step: The step that it became part of; None if no step is left of it.
    """

    name: str
    op: str
    attributes: str
    dtype: str
    shape: str
    reads: tuple[int, ...]
    step: int | None


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that could be better.

    Attributes:
        rule: Which rule says so.
        title: What is the matter.
        hazard: What is lost, and why.
        gain: Milliseconds of a run that could be saved, estimated.
        share: The same as a share of the run, 0 to 1.
        remedy: What to do, a command or a change of code.
        steps: The steps that it is about, those that lose most first.
    """

    rule: str
    title: str
    hazard: str
    gain: float
    share: float
    remedy: str
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of the times of whole runs, in milliseconds."""

    least: float
    p50: float
    p90: float
    p95: float
    p99: float
    most: float
    mean: float


@dataclass(frozen=True, slots=True)
class About:
    """What ran, on what, and when.

    Attributes:
        model: What it is called: the path of its file.
        page: The file that it stands in, which commands name.
        made: Date and time (UTC), as ISO 8601 writes it.
        saccade: Version of Saccade.
        commit: The commit of its checkout; empty if it is none.
        code: The beginning of the digest of its sources.
        device, precision, threads, exact, isa: What it was compiled for.
        planned_for: The described machine that kernels were chosen for.
        cores: Processors that the process may use.
        command: Options that say the same on the command line, each with its value.
        inputs, outputs: Name, type and shape of each.
        machine: What the system tells of the machine.
        versions: Of the packages that it runs with.
        remarks: What there is to say of the plan, and what is missing here and why.
    """

    model: str
    page: str
    made: str
    saccade: str
    commit: str
    code: str
    device: str
    precision: str
    threads: int
    exact: bool
    isa: str
    planned_for: str
    cores: int
    command: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """Figures of the whole run: microseconds, bytes.

    Attributes:
        profiled: From the first step's start to the last one's end, of the clocked runs.
        whole: Of a run that is launched at once, where steps are clocked one by one.
        estimate: What selection expected.
        floor: What the plan cannot be faster than.
        floor_arithmetic, floor_memory, floor_barriers: What it is made of.
        arena, live: Bytes of the arena, and the most of it in use at once.
        packed, raw: Bytes of constants that runs read, in an order of their own or as in the model.
        batch: Images that a run takes; 0 if its inputs are none, or of different numbers.
        queued: Runs that each sample of `Report.times` is the mean of.
    """

    profiled: float
    whole: float | None
    estimate: float
    floor: float
    floor_arithmetic: float
    floor_memory: float
    floor_barriers: float
    arena: int
    live: int
    packed: int
    raw: int
    batch: int
    queued: int


@dataclass(frozen=True, slots=True)
class Report:
    """One run of a model on one machine.

    Attributes:
        format: See `FORMAT`.
        about: What it is of.
        totals: Of the whole run.
        percentiles: Of `times`.
        shares: Where the threads' time went.
        speeds: Of the machine, measured.
        steps: In order.
        blocks: The arena over the steps.
        imported: The graph before anything was fused; empty where it is not known.
        times: Milliseconds of whole runs, in the order in which they ran.
        advice: What could be better, by gain.
    """

    format: int
    about: About
    totals: Totals
    percentiles: Percentiles
    shares: Shares
    speeds: Machine
    steps: tuple[ReportStep, ...]
    blocks: tuple[ArenaBlock, ...]
    imported: tuple[ImportedNode, ...]
    times: tuple[float, ...]
    advice: tuple[Advice, ...]

    def to_json(self, against: Report | None = None) -> str:
        """All figures as JSON, and those of an earlier run with what changed, if one is given."""
        return json.dumps(document(self, against), indent=1, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Report:
        """The report that `to_json` wrote; of two runs the later one.

        Raises:
            ValueError: If it is none, or of another format; says what is wrong.
        """
        try:
            record = json.loads(text)
        except RecursionError as error:
            raise MalformedError("it is nested too deeply") from error
        own = record.get("report") if isinstance(record, dict) else None
        if not isinstance(own, dict) or "format" not in own:
            raise MalformedError("it is no report of Saccade")
        if own["format"] != FORMAT:
            raise MalformedError(f"its format is {own['format']!r}, this is format {FORMAT}")
        return _consistent(decode(Report, own))

    def to_html(self, against: Report | None = None) -> str:
        """One page that needs nothing else, with an earlier run beside it if one is given."""
        with forkless:
            from saccade.report.page import page  # noqa: PLC0415 - only people look at it

        return page(self, against)


def _consistent(report: Report) -> Report:
    """The report, if all numbers of steps and nodes in it are of some that there are."""
    steps, nodes = len(report.steps), len(report.imported)
    named = (
        ("a step", steps, (at for step in report.steps for at in step.reads)),
        ("a node", nodes, (at for node in report.imported for at in node.reads)),
    )
    for what, count, reads in named:
        if not all(-len(report.about.inputs) <= at < count for at in reads):
            raise MalformedError(f"{what} reads what there is not")
    told = [
        *(node.step for node in report.imported if node.step is not None),
        *(at for block in report.blocks for at in (block.first, block.last)),
        *(at for one in report.advice for at in one.steps),
    ]
    if not all(0 <= at < steps for at in told) or not report.times:
        raise MalformedError("it tells of steps that there are not, or of no run")
    return report


def document(report: Report, against: Report | None = None) -> dict[str, object]:
    """A report as plain data, an earlier run, and what changed from that one."""
    with forkless:
        from saccade.report.diff import diff  # noqa: PLC0415 - for two of them

    return {
        "report": asdict(report),
        "against": None if against is None else asdict(against),
        "diff": None if against is None else asdict(diff(against, report)),
    }
