"""The steps of a recurrent layer: products with the state, activations, the next state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from saccade.backends.cpu.codegen.expressions import emit_expr
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Bool, Int, Mask, Vec
from saccade.ir.expr import Expr, parse

if TYPE_CHECKING:
    from saccade.kernels.cpu.recurrent.walk import WalkConfig

__all__ = ["GATES", "LayerWalk", "emit_weights"]

GATES = {"rnn": 1, "gru": 3, "lstm": 4}

Sums = list[list[Vec]]
"""Of each row and gate."""


def emit_weights(k: KernelBuilder, gates: int, width: int) -> None:
    """The phase that packs weights [D, G·H, H] as `pack_recurrent` does."""
    to, weights = k.pointer("to"), k.pointer("weights")
    directions, panels, size = k.integers("directions panels size")
    with k.chunks(directions * panels) as chunk:
        source = weights + chunk // panels * size * size * gates
        panel = to + chunk * size * (gates * width)
        with k.range(0, size) as i:
            for gate in range(gates):
                with k.range(0, width) as w:
                    unit = chunk % panels * width + w
                    # Behind the last unit, the last one's weights: nothing of it is ever stored.
                    row = k.minimum_int(unit, size - 1) + size * gate
                    panel.store(source.load(row * size + i), i * (gates * width) + gate * width + w)


class LayerWalk:
    """The code of one configuration."""

    def __init__(self, k: KernelBuilder, config: WalkConfig) -> None:
        self.k, self.config = k, config
        self.x, self.weights = k.pointer("x"), k.pointer("weights")
        lstm = config.kind == "lstm"
        self.hidden = k.pointer("hidden") if config.started else None
        self.cell = k.pointer("cell") if config.started and lstm else None
        self.bias = k.pointer("bias") if config.kind == "gru" and config.linear else None
        self.peepholes = k.pointer("peepholes") if config.peephole else None
        self.lengths = k.pointer("lengths", "int64") if config.varying else None
        self.states, self.last = k.pointer("states"), k.pointer("last")
        self.last_cell = k.pointer("last_cell") if lstm else None
        self.space = k.scratch("space")
        self.steps, self.batch, self.directions, self.size, self.blocks = k.integers(
            "steps batch directions size blocks"
        )
        self.width = self.size * GATES[config.kind]
        self.gate, self.inner, self.outer = map(parse, config.activations)

    def emit(self) -> None:
        """Chunks: a direction and a block of rows each."""
        k, config = self.k, self.config
        with k.chunks(self.directions * self.blocks) as chunk:
            direction = chunk // self.blocks
            first = chunk % self.blocks * config.rows
            # Behind the last row, the last one is computed again: the same numbers once more.
            rows = [k.minimum_int(first + r, self.batch - 1) for r in range(config.rows)]
            self._begin(direction, rows)
            back = direction > 0 if not config.backwards else direction >= 0
            with k.range(0, self.steps) as turn:
                step = back.select(self.steps - 1 - turn, turn)
                self._step(direction, rows, step, turn % 2)
            self._end(direction, rows)

    # -- buffers: two of states, one of cells (or updates), one of reset states ------------------

    def _buffer(self, number: Int | int, row: int) -> Ptr:
        return self.space + (self.size * number * self.config.rows + self.size * row)

    def _state_of(self, direction: Int, row: Int) -> Int:
        return (direction * self.batch + row) * self.size

    def _begin(self, direction: Int, rows: Sequence[Int]) -> None:
        k = self.k
        for r, row in enumerate(rows):
            at = self._state_of(direction, row)
            with k.range(0, self.size, k.lanes) as j:
                mask = self._mask(j)
                for number, given in ((0, self.hidden), (2, self.cell)):
                    first = k.zero() if given is None else (given + at).vec(j, mask)
                    self._buffer(number, r).store(first, j, mask)

    def _end(self, direction: Int, rows: Sequence[Int]) -> None:
        k = self.k
        for r, row in enumerate(rows):
            at = self._state_of(direction, row)
            with k.range(0, self.size, k.lanes) as j:
                mask = self._mask(j)
                state = self._buffer(self.steps % 2, r).vec(j, mask)
                (self.last + at).store(state, j, mask)
                if self.last_cell is not None:
                    (self.last_cell + at).store(self._buffer(2, r).vec(j, mask), j, mask)

    def _mask(self, j: Int) -> Mask:
        k = self.k
        return k.first(k.maximum_int(k.minimum_int(self.size - j, k.lanes), 0))

    # -- a step ----------------------------------------------------------------------------------

    def _step(self, direction: Int, rows: Sequence[Int], step: Int, parity: Int) -> None:
        k, config = self.k, self.config
        block = GATES[config.kind] * config.vectors * k.lanes
        panels = (self.size + (config.vectors * k.lanes - 1)) // (config.vectors * k.lanes)
        weights = self.weights + direction * panels * self.size * block
        inputs = [
            self.x + ((step * self.batch + row) * self.directions + direction) * self.width
            for row in rows
        ]
        there = [
            None if self.lengths is None else step < self.lengths.load_int(row) for row in rows
        ]
        old = [self._buffer(parity, r) for r in range(config.rows)]
        new = [self._buffer(1 - parity, r) for r in range(config.rows)]
        results = [
            self.states + ((step * self.directions + direction) * self.batch + row) * self.size
            for row in rows
        ]
        reset = config.kind == "gru" and not config.linear
        if reset:
            # The hidden gate needs all of the state times the reset gate before it begins.
            for j, masks in self._units():
                sums = self._sums(inputs, weights, old, j, masks, (0, 1))
                for r in range(config.rows):
                    for v, mask in enumerate(masks):
                        at = j + v * k.lanes
                        z, g = (self._apply(self.gate, sums[r][2 * v + n]) for n in (0, 1))
                        self._buffer(2, r).store(z, at, mask)
                        self._buffer(3, r).store(g * old[r].vec(at, mask), at, mask)
        source = [self._buffer(3, r) for r in range(config.rows)] if reset else old
        gates = {"rnn": (0,), "gru": (2,) if reset else (0, 1, 2), "lstm": (0, 1, 2, 3)}
        chosen = gates[config.kind]
        for j, masks in self._units():
            sums = self._sums(inputs, weights, source, j, masks, chosen)
            for r in range(config.rows):
                for v, mask in enumerate(masks):
                    at, count = j + v * k.lanes, len(chosen)
                    own = sums[r][v * count : (v + 1) * count]
                    state = self._next(direction, own, (inputs[r], old[r], r), at, mask, there[r])
                    kept = shown = state
                    if (still := there[r]) is not None:
                        kept = still.choose(state, old[r].vec(at, mask))
                        shown = still.choose(state, state.like(0.0))
                    new[r].store(kept, at, mask)
                    results[r].store(shown, at, mask)

    def _units(self) -> Iterator[tuple[Int, list[Mask]]]:
        """Blocks of units, the loop's body once."""
        k, step = self.k, self.config.vectors * self.k.lanes
        with k.range(0, self.size, step) as j:
            yield j, [self._mask(j + v * k.lanes) for v in range(self.config.vectors)]

    def _sums(
        self,
        inputs: Sequence[Ptr],
        weights: Ptr,
        source: Sequence[Ptr],
        j: Int,
        masks: Sequence[Mask],
        gates: Sequence[int],
    ) -> Sums:
        """Inputs and products with a state: of each row, for each vector of units and each gate."""
        k, config = self.k, self.config
        width = config.vectors * k.lanes
        block = GATES[config.kind] * width
        panel = weights + j // width * self.size * block
        places = [(v, g) for v in range(len(masks)) for g in gates]
        # The hidden gate of a gru whose reset comes later is kept apart from the inputs.
        apart = [config.kind == "gru" and config.linear and g == 2 for _ in masks for g in gates]
        sums = [
            [
                k.var(k.zero() if alone else x.vec(self.size * g + j + v * k.lanes, masks[v]))
                for (v, g), alone in zip(places, apart, strict=True)
            ]
            for x in inputs
        ]
        with k.range(0, self.size) as i:
            row = panel + i * block
            loaded = [row.vec(g * width + v * k.lanes) for v, g in places]
            for r, variables in enumerate(sums):
                h = source[r].splat(i)
                for variable, w in zip(variables, loaded, strict=True):
                    variable.set(k.fma(h, w, variable.get()))
        return [[variable.get() for variable in variables] for variables in sums]

    def _next(
        self,
        direction: Int,
        sums: Sequence[Vec],
        row: tuple[Ptr, Ptr, int],
        at: Int,
        mask: Mask,
        there: Bool | None,
    ) -> Vec:
        """The next state of a vector of units; the cell is stored."""
        config, (x, old, r) = self.config, row
        if config.kind == "rnn":
            return self._apply(self.inner, sums[0])
        if config.kind == "lstm":
            return self._next_of_lstm(direction, sums, r, at, mask, there)
        h = old.vec(at, mask)
        if not config.linear:
            z, new = self._buffer(2, r).vec(at, mask), self._apply(self.inner, sums[0])
        else:
            assert self.bias is not None
            z, g = (self._apply(self.gate, s) for s in sums[:2])
            product = sums[2] + (self.bias + direction * self.size).vec(at, mask)
            new = self._apply(self.inner, x.vec(self.size * 2 + at, mask) + g * product)
        return new - z * new + z * h

    def _next_of_lstm(
        self,
        direction: Int,
        sums: Sequence[Vec],
        r: int,
        at: Int,
        mask: Mask,
        there: Bool | None,
    ) -> Vec:
        i, o, f, inner = sums
        cells = self._buffer(2, r)
        cell = cells.vec(at, mask)

        def seen(number: int, value: Vec, through: Vec) -> Vec:
            if self.peepholes is None:
                return value
            p = self.peepholes + (direction * 3 + number) * self.size
            return value + p.vec(at, mask) * through

        i = self._apply(self.gate, seen(0, i, cell))
        f = 1.0 - i if self.config.coupled else self._apply(self.gate, seen(2, f, cell))
        new = f * cell + i * self._apply(self.inner, inner)
        o = self._apply(self.gate, seen(1, o, new))
        cells.store(new if there is None else there.choose(new, cell), at, mask)
        return o * self._apply(self.outer, new)

    def _apply(self, e: Expr, v: Vec) -> Vec:
        return emit_expr(self.k, e, [v])
