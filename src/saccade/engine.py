"""Source to programs: everything that a start needs when no earlier one left it ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from saccade import collector, layout, tuning
from saccade import plan as planner
from saccade.ahead import kernels_ahead, kernels_of, layouts_ahead
from saccade.bundlefile import BundleHead, BundlePart, write_bundle
from saccade.devices import device_named
from saccade.errors import InputError, OptionError
from saccade.ir import Dim, Graph, Value
from saccade.ir.dim import Affine, Symbol, substituted, symbol
from saccade.kernels.base import Call, Key
from saccade.logs import debug
from saccade.lowered import Lowered
from saccade.options import Options
from saccade.plan import Needs, Plan, Step
from saccade.processes import Processes
from saccade.signature import Signature, TensorInfo, shape_text, unfit
from saccade.version import VERSION

if TYPE_CHECKING:
    from saccade.program import DeviceBuffer, Program, Store

__all__ = ["Engine", "sizes_of"]


class Engine:
    """The graph of a model, and the backend that turns it into programs.

    Args:
        lower: Gives the graph; asked last, as it may still be in the making.
        options: The user's.
        processes: Where to compile.
        store: The device's, where programs are left for later starts, if anywhere.
        lasting: Whether the graph's identity is one that later starts find again.

    Attributes:
        signature: Inputs and outputs.
        trace: Gives the text of the graph after the frontend and after each pass.
        imported: Gives the graph as the frontend made it, before any pass.
        backend: Of `options.device`.
        graph: After every pass.
        identity: Distinguishes its constants from those of other models.
    """

    def __init__(
        self,
        lower: Callable[[], Lowered],
        options: Options,
        processes: Processes,
        store: Store | None,
        *,
        lasting: bool,
    ) -> None:
        # Before the graph is asked for: kernels are imported while it is still in the making.
        self.backend = device_named(options.device).backend(options, processes, store)
        lowering = lower()
        self.trace: Callable[[], Mapping[str, str]] = lowering.trace
        self.imported: Callable[[], Graph] = lowering.imported
        self.graph = graph = lowering.graph
        self.identity = lowering.identity
        self._lasting = lasting
        self._options = options
        if store is not None:
            # Warm starts pack from there what is not kept packed.
            store.graph_is_at(lowering.entry)
        self._algorithms = self._choices()
        self._varies = False
        self._decisions = layout.Decisions()
        self._told: tuple[Mapping[str, int], Sequence[Needs]] = ({}, ())
        # A model whose sizes are all fixed has no other sizes to compile for.
        self._free = any(not isinstance(dim, int) for v in graph.inputs for dim in v.shape)
        self.signature = signature_of(graph, lowering.source)
        if store is not None:
            store.keep_signature(self.signature)

    def plan(self, shapes: Sequence[tuple[int, ...]]) -> Plan:
        """The plan for these input shapes.

        Raises:
            InputError: If they do not fit the model.
            PlanError: If they fit, but some step cannot work on them.
        """
        sizes = sizes_of(self.graph, shapes)
        with collector.put_off():  # and no layout is left once it goes on
            return self._plan(self._lay_out(sizes, self.backend.available, reuse=True), sizes)

    def run_bytes(self, shapes: Sequence[tuple[int, ...]]) -> int:
        """Bytes that a run takes beside constants, whatever was compiled before: see `plan`."""
        sizes = sizes_of(self.graph, shapes)
        with collector.put_off():
            # Of a first plan, for which all code counts as available.
            laid = self._lay_out(sizes, lambda _kernel, _config: True, reuse=True)
            plan = self._plan(laid, sizes)
        return plan.arena_bytes + plan.output_bytes

    def _lay_out(
        self, sizes: Mapping[str, int], available: layout.Available, *, reuse: bool = False
    ) -> layout.GraphLayout:
        return layout.assign(
            self.graph,
            sizes,
            self.backend,
            threads=self._options.resolved_threads,
            exact=self._options.exact,
            available=available,
            timings=self._timings(),
            limits=self._options.limits,
            reuse=reuse,
            # What is only promised to be compiled must not settle what later sizes take.
            decisions=self._decisions if available == self.backend.available else None,
        )

    def _plan(self, laid: layout.GraphLayout, sizes: Mapping[str, int]) -> Plan:
        threads, isa = self._options.resolved_threads, self.backend.target.isa
        # Told by the plan itself, so that bundles name their choices as well.
        laid = replace(laid, notes=(*laid.notes, *self._tuned_by(laid)))
        return planner.make(self.graph, laid, sizes, threads, isa, self._options.limits)

    def _tuned_by(self, laid: layout.GraphLayout) -> list[str]:
        """Names what tuned steps depend on, if there are any."""
        tuned, chosen = sum(s.choice.measured is not None for s in laid.steps), self._algorithms
        if chosen is None or not tuned:
            return []
        given = self._options.algorithms
        name = "what tune kept" if given is None else Path(given).name
        return [f"{tuned} step(s) as tuned: {name}, sha256 {chosen.digest}"]

    def program(self, shapes: Sequence[tuple[int, ...]], others: Iterable[Program]) -> Program:
        """The program for these input shapes; it prefers the code of the `others`."""
        others = tuple(others)
        if self.backend.idle:
            # Nothing was compiled here, so the others came from disk. Without this all code would
            # count as available, and theirs would not be preferred.
            for other in others:
                self.backend.adopt(other.plan)
        begun = perf_counter()
        sizes = sizes_of(self.graph, shapes)
        ahead = None
        with collector.put_off():  # and of a later size, no layout is left once it goes on
            laid = self._lay_out(sizes, self.backend.available, reuse=True)
            plan = self._plan(laid, sizes)
            # Beside the first program alone: later sizes find what was compiled then.
            if self._free and self.backend.idle:
                ahead = partial(self._ahead, laid, sizes)
            # `ahead` holds it where it is wanted; else it must go before the collector is back.
            del laid
        planned = perf_counter()
        program = self.backend.build(plan, self.graph, self.identity, ahead)
        debug(
            "%s: %d steps, planned in %.0f ms, built in %.0f ms",
            ", ".join(map(shape_text, shapes)),
            len(plan.steps),
            1e3 * (planned - begun),
            1e3 * (perf_counter() - planned),
        )
        if others and not self._varies:  # sizes vary, and more of them will come
            self._varies = True
            # Around the first size: what sizes there need was noted if its code was compiled here.
            first = [port.shape for port in others[0].plan.inputs]
            needs = partial(self._needs_around, first)
            self.backend.expect(needs, self.graph, self.identity, program)
        return program

    def bundle(
        self, path: Path, sizes: Sequence[Sequence[tuple[int, ...]]], others: Sequence[Engine] = ()
    ) -> int:
        """Write a bundle with a program for each set of input shapes; its size in bytes.

        Args:
            path: The file.
            sizes: The sets.
            others: The model's engines for other machines, which it is for in place of this one.

        Raises:
            InputError: If shapes do not fit the model.
            OptionError: If the device has no bundles, or none for several machines.
            OSError: If it cannot be written.
        """
        if len(others) > 1 and self._options.device != "cpu":
            raise OptionError(f"a bundle for {self._options.device} is for one machine")
        made, entries = [], dict[str, bytes]()
        first, *more = (_solve(self.graph.inputs, shapes) for shapes in sizes)
        # Axes of one size in all of them.
        known = {name: n for name, n in first.items() if all(one[name] == n for one in more)}
        for number, one in enumerate(others or (self,)):
            plans = [one.plan(shapes) for shapes in sizes]
            machine, part = one.backend.bundle(plans, one.graph, one.identity)
            made.append(machine)
            entries |= {BundlePart.name(number, name): content for name, content in part.items()}
        head = BundleHead(
            VERSION,
            self._options.device,
            self._options.precision.value,
            self._options.resolved_threads,
            tuple(made),
            signature_of(self.graph, self.signature.source, known),
            tuple(tuple(map(tuple, shapes)) for shapes in sizes),
            self.identity,
        )
        return write_bundle(path, head, entries)

    def kernels(self, shapes: Sequence[tuple[int, ...]]) -> tuple[Plan, list[Key]]:
        """A plan, and what else plans for sizes around these take, if sizes may vary."""
        sizes = sizes_of(self.graph, shapes)
        laid = self._lay_out(sizes, self.backend.available, reuse=True)
        return self._plan(laid, sizes), self._ahead(laid, sizes) if self._free else []

    def _ahead(self, laid: layout.GraphLayout, sizes: Mapping[str, int]) -> list[Key]:
        """What to compile beside the first program, as other sizes will want it."""
        own, generic_configs = kernels_of(laid), self.backend.generic_configs(laid)
        needs = list[Needs]()

        def lay_out(around: Mapping[str, int], available: layout.Available) -> layout.GraphLayout:
            other = self._lay_out(around, available)
            # Kept for when sizes vary: `expect` then packs without planning again.
            needs.append(self._plan(other, around).needs)
            return other

        with collector.put_off():
            others = kernels_ahead(
                self.graph, sizes, lay_out, {*own, *generic_configs}, self._options.limits
            )
        self._told = sizes, needs
        return [*generic_configs, *others]

    def _needs_around(self, shapes: Sequence[tuple[int, ...]]) -> Iterator[Needs]:
        """Of sizes around these, which may have been planned for beside the first compilation."""
        sizes, limits = sizes_of(self.graph, shapes), self._options.limits
        told, needs = self._told
        if told == sizes:
            yield from needs
            return
        lay_out = partial(self._lay_out, available=self.backend.available, reuse=True)
        layouts = layouts_ahead(self.graph, sizes, lay_out, limits)
        # One plan at a time: whoever asks packs in between, and the collector may run then.
        while True:
            with collector.put_off():  # and no layout is left while others go on
                plan = next((self._plan(laid, around) for laid, around in layouts), None)
            if plan is None:
                return
            yield plan.needs

    def assembly(self, plan: Plan, pattern: str) -> dict[str, tuple[str, ...]]:
        """Machine code of the steps whose names fit; see `Model.assembly`."""
        fitting = [step for step in plan.steps if fnmatchcase(step.name, pattern)]
        if not fitting:
            raise InputError(f"no step is called {pattern!r}; the plan lists them")
        found: dict[str, tuple[str, ...]] = {}
        for step, text in zip(fitting, self.backend.assembly(fitting), strict=True):
            found[step.name] = (*found.get(step.name, ()), *text)  # a Concat's parts share its name
        return found

    def tune(
        self,
        inputs: Sequence[DeviceBuffer],
        seconds: float | None,
        report: Callable[[tuning.Progress], None],
    ) -> tuning.Outcome:
        """Search for faster choices on these inputs, and keep them; see `Model.tune`."""
        sizes = sizes_of(self.graph, [a.shape for a in inputs])
        request = tuning.TuneRequest(
            self.graph, self.identity, sizes, inputs, self.algorithms, seconds, report
        )
        outcome = self.backend.tune(request)
        self._algorithms = self.algorithms.replaced(outcome.calls, outcome.algorithms)
        # Under the identity of one process nothing would find them again.
        if self._lasting:
            tuning.keep(self.identity, self._algorithms)
        return outcome

    def measured(self, plan: Plan) -> tuple[tuple[tuning.Measured, ...], ...]:
        """For each step of a plan, what was ever measured here of ways to do it."""
        known = self.backend.timings()
        if known is None:
            return ((),) * len(plan.steps)
        return tuple(known.of(tuning.call_key(self._call(plan, step))) for step in plan.steps)

    def _call(self, plan: Plan, step: Step) -> Call:
        """The call that a step was chosen for."""
        constant = tuple(map(plan.is_weight, step.inputs))
        inputs, outputs = (tuple(s.view for s in side) for side in (step.inputs, step.outputs))
        target = self.backend.target
        return Call(step.op, inputs, outputs, constant, target, plan.threads, plan.exact)

    @property
    def algorithms(self) -> tuning.Algorithms:
        """The tuned choices, of all sizes: from a file, or what `tune` kept."""
        backend = self.backend
        return self._algorithms or tuning.Algorithms(backend.device, backend.identity(), ())

    def _choices(self) -> tuning.Algorithms | None:
        if self._options.algorithms is not None:
            return tuning.load(self._options.algorithms)
        if self._options.machine is not None:
            return None  # what is kept was measured here
        return tuning.kept(self.identity, self.backend.identity()) if self._lasting else None

    def _timings(self) -> tuning.Lookup | None:
        if self._algorithms is None:
            return None
        # What `tune` kept is of all sizes: that a plan takes only some of it is worth no word.
        backend, imported = self.backend, self._options.algorithms is not None
        return tuning.Lookup(self._algorithms, backend.device, backend.identity(), whole=imported)


def signature_of(
    graph: Graph, source: str, known: Mapping[str, int] = MappingProxyType({})
) -> Signature:
    """What the graph of a file takes and gives, where some symbols are known to be of a size."""
    # Numbers that steps find out are the last outputs, and not the caller's.
    names = (graph.output_names or [v.name for v in graph.outputs])[: len(graph.results)]
    bounds = {symbol(c.symbol): f"{c.symbol}<={c.bound}" for c in graph.counts}

    def info(value: Value, name: str) -> TensorInfo:
        if name in graph.held:
            return TensorInfo(name, graph.held[name], ("...",), held=True)
        dims = (substituted(dim, known) for dim in value.shape)
        shape = tuple(dim if isinstance(dim, int) else bounds.get(dim, str(dim)) for dim in dims)
        return TensorInfo(name, value.dtype.value, shape)

    return Signature(
        tuple(info(value, value.name) for value in graph.inputs),
        tuple(info(*both) for both in zip(graph.results, names, strict=True)),
        source,
    )


def sizes_of(graph: Graph, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The sizes that are planned for: of the inputs' symbols, and bounds of those found later."""
    return graph.with_bounds(_solve(graph.inputs, shapes))


def _solve(inputs: Sequence[Value], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Sizes of the symbols; every input dim is an integer or a symbol."""
    sizes: dict[str, int] = {}
    for value, shape in zip(inputs, shapes, strict=True):
        if len(shape) != value.rank:
            raise InputError(
                f"input {value.name!r} must have {value.rank} axes, given are {len(shape)}"
            )
        for dim, size in zip(value.shape, shape, strict=True):
            name = _symbol_name(dim)
            if name is None and dim != size:
                raise unfit(value.name, value.shape, shape)
            if name is not None and sizes.setdefault(name, size) != size:
                raise InputError(
                    f"dim {name} of input {value.name!r} is {size}, elsewhere it is {sizes[name]}: "
                    "shapes= of saccade.compile, or --shape, tells apart what a file calls alike"
                )
    return sizes


def _symbol_name(dim: Dim) -> str | None:
    if isinstance(dim, Affine):
        (atom, _), *_ = dim.terms
        assert isinstance(atom, Symbol)
        return atom.name
    return None
