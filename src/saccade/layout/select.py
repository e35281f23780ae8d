"""The kernel of each step.

The one that was measured to be fastest; where nothing was measured, the cheapest by its own
estimate of those that take the call. What rounds is settled by the call and the machine's
description alone; only between variants that give the same bits may it matter which code exists.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, cast

from saccade.kernels.base import Call, Launch, Variant
from saccade.kernels.select import Candidate, Candidates, Passed
from saccade.layout.types import Choice, Timings

if TYPE_CHECKING:
    from saccade.backend import Backend
    from saccade.kernels.base import Kernel

__all__ = ["Available", "Decisions", "Selector"]

Available = Callable[[str, Hashable], bool]
"""Whether code for (kernel, config) exists already."""


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a call takes: by the chosen candidate, or as it was measured to be fastest."""

    choice: Choice
    chosen: Candidate
    tuned: tuple[Launch, ...] | None


# Unlike None, which says that no kernel takes the call.
_UNKNOWN = object()
_MOST_CALLS = 4096  # that decisions are kept of: some plans of a detector


class Decisions:
    """What plans of a model decided, for its other sizes, which have calls in common.

    For one backend without measured times. A decision follows from the call alone, so that nothing
    depends on what was planned before. Phases are kept where no others would ever be taken: the
    fastest, which have code.
    """

    def __init__(self) -> None:
        self.known: dict[Call, _Decision | None] = {}
        self.launches: dict[Call, tuple[Launch, ...]] = {}

    def trim(self) -> None:
        """Forget everything once it is too much; the next plan notes its own again."""
        if len(self.known) > _MOST_CALLS:
            self.known, self.launches = {}, {}

    def note(self, call: Call, decision: _Decision | None) -> None:
        """Keep a decision, but no walk through other variants, which only one plan can make."""
        if decision is not None:
            decision = replace(decision, chosen=decision.chosen._replace(others=None))
        self.known[call] = decision


class Selector:
    """Chooses kernels; equal calls are decided once.

    Args:
        backend: Where candidates come from.
        available: If given, variants whose code exists are preferred to others with the same bits.
        timings: What was measured, if anything was.
        decisions: Of other plans, without timings; what is decided here is added.
    """

    def __init__(
        self,
        backend: Backend,
        available: Available | None = None,
        timings: Timings | None = None,
        decisions: Decisions | None = None,
    ) -> None:
        shared = decisions is not None and timings is None
        self._earlier = decisions if decisions is not None and shared else Decisions()
        self._earlier.trim()
        # Before anything is compiled all code counts as there, as long as this plan takes.
        self._settles = shared and not backend.idle
        self._backend = backend
        self._available = available
        self._timings = timings
        self._known: dict[Call, _Decision | None] = {}
        # Apart from decisions, as the search asks about many calls that are never laid out.
        self._launches: dict[Call, tuple[Launch, ...]] = {}

    def select(self, call: Call) -> Choice | None:
        """The choice, or None if no kernel takes the call as it is stored."""
        decision = self._decision(call)
        return None if decision is None else decision.choice

    def launches(self, call: Call) -> tuple[Launch, ...]:
        """The phases of a call's choice."""
        found = self._launches.get(call) or self._earlier.launches.get(call)
        if found is None:
            decision = self._decision(call)
            assert decision is not None
            found = decision.tuned or self._chosen_launches(call, decision.chosen)
            self._launches[call] = found
        return found

    def has_code(self, call: Call) -> bool:
        """Whether there is code for a call's choice, which a kernel takes."""
        decision = self._decision(call)
        assert decision is not None and decision.choice.kernel is not None
        configs = tuple(launch.config for launch in self.launches(call))
        return self._available is None or self._exists(decision.choice.kernel, configs)

    def rounds_alike(self, call: Call, kernel: str) -> bool:
        """Whether a call's choice is a variant of that kernel with the bits that most have."""
        found = self._decision(call)
        # What was measured to be fastest may round in any way.
        if found is None or found.tuned is not None or found.chosen.best.rounding is not None:
            return False
        return found.chosen.kernel.name == kernel

    def _decision(self, call: Call) -> _Decision | None:
        known = self._known.get(call, _UNKNOWN)
        if known is _UNKNOWN:
            known = self._earlier.known.get(call, _UNKNOWN)
            if known is _UNKNOWN:
                known = self._decide(call)
                self._earlier.note(call, known)
            self._known[call] = cast("_Decision | None", known)
        return cast("_Decision | None", known)

    def refusals(self, call: Call) -> tuple[Passed, ...]:
        """Why each candidate refuses the call."""
        found = ((k, k.supports(call)) for k in self._backend.candidates(call.op))
        return tuple(Passed(k.name, reason) for k, reason in found if reason is not None)

    def _decide(self, call: Call) -> _Decision | None:
        kernels = self._backend.candidates(call.op)
        found = Candidates.of(call, kernels, self._backend.nominal_threads)
        if not found.able:
            return None
        best = found.cheapest
        tuned = None
        if self._timings is not None:
            tuned = self._timings.tuned(call, kernels)
        kernel, cost, measured = best.kernel, best.micros, None
        # On the scale of estimates, which storage is chosen by: measured times stay out of them.
        if tuned is not None:
            kernel, cost, measured = tuned.kernel, cost * tuned.ratio, tuned.micros
        passed = found.refused
        if len(found.able) > 1 or kernel is not best.kernel:
            others = sorted(found.able, key=lambda candidate: candidate.best.micros)
            passed += tuple(
                Passed.slower(other.kernel.name, other.micros)
                for other in others
                if other.kernel is not kernel
            )
        choice = Choice(kernel, cost, passed, kernel.aliases(call), measured)
        return _Decision(choice, best, None if tuned is None else tuned.launches)

    def _chosen_launches(self, call: Call, chosen: Candidate) -> tuple[Launch, ...]:
        """The phases: of the variants with the chosen one's bits the fastest, or one with code."""
        # How sums are made follows from the nominal team, tiles from the one that there is.
        rounding = chosen.best.rounding
        # `others` can be walked but once; `launches` keeps what comes of it.
        variants: Iterator[Variant]
        if call.threads != self._backend.nominal_threads or chosen.others is None:
            variants = iter(chosen.kernel.variants(call))
        else:
            variants = chain([chosen.best], chosen.others)
        first = next(one for one in variants if one.rounding == rounding)
        if self._available is None:
            return first.launches
        launches = self._with_code(chosen.kernel, first)
        if launches is not None:
            if self._settles:
                self._earlier.launches[call] = launches
            return launches
        # Variants of equal code lack it alike; None is equal to nothing.
        missing, others = {first.code} - {None}, []
        most = self._backend.reuse_slowdown * first.micros
        for other in variants:
            if other.micros > most:  # those behind it that give the same bits are no faster
                break
            if other.rounding == rounding and other.code not in missing:
                launches = self._with_code(chosen.kernel, other)
                if launches is not None:
                    return launches
                others.append(other)
                if other.code is not None:
                    missing.add(other.code)
        # What has to be compiled had better serve the sizes after this one, too.
        generic_configs = frozenset(chosen.kernel.generic_configs(call))
        if generic_configs:
            first = next((one for one in others if generic_configs.issuperset(one.needs)), first)
        return first.launches

    def _with_code(self, kernel: Kernel, variant: Variant) -> tuple[Launch, ...] | None:
        """The phases of a variant that has code, else None."""
        if variant.configs is not None:
            return variant.launches if self._exists(kernel, variant.configs()) else None
        # They are made but once: making them is most of what a choice takes.
        launches = variant.launches
        configs = tuple(launch.config for launch in launches)
        return launches if self._exists(kernel, configs) else None

    def _exists(self, kernel: Kernel, configs: tuple[Hashable, ...]) -> bool:
        available = self._available
        assert available is not None
        return all(available(kernel.name, config) for config in configs)
