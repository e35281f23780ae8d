"""One step of a recurrent layer: some rows of the batch, some units, in one direction.

States are [directions, batch, size]: `before` and `after` the step; of a gru `update` is its gate
and `reset` the state times the other one.
"""

import triton
import triton.language as tl


@triton.jit
def _block(batch, size, ROWS: tl.constexpr, UNITS: tl.constexpr):
    """Direction, rows and units of a program."""
    wide = tl.cdiv(size, UNITS)
    high = tl.cdiv(batch, ROWS)
    row = tl.program_id(0) // wide % high * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(0) % wide * UNITS + tl.arange(0, UNITS)
    return tl.program_id(0) // (wide * high), row, unit


@triton.jit
def _when(direction, time, steps, BACKWARDS: tl.constexpr):
    """Which step of the sequence it is: the second direction runs from the end."""
    return steps - 1 - time if BACKWARDS else tl.where(direction == 1, steps - 1 - time, time)


@triton.jit
def _product(
    state, weights, direction, gate, gates, row, unit, batch, size,
    ROWS: tl.constexpr, UNITS: tl.constexpr, TERMS: tl.constexpr,
):  # fmt: skip
    """[ROWS, UNITS]: a state times the weights of one gate."""
    sums = tl.zeros((ROWS, UNITS, TERMS), tl.float32)
    lines = weights + (direction * gates + gate) * size * size + unit * size
    values = state + (direction * batch + row) * size
    for start in range(0, size, TERMS):
        term = start + tl.arange(0, TERMS)
        mask = (unit < size)[:, None] & (term < size)[None, :]
        weight = tl.load(lines[:, None] + term[None, :], mask=mask, other=0).to(tl.float32)
        there = (row < batch)[:, None] & (term < size)[None, :]
        value = tl.load(values[:, None] + term[None, :], mask=there, other=0).to(tl.float32)
        sums += value[:, None, :] * weight[None, :, :]
    return tl.sum(sums, 2)


@triton.jit
def _given(x, at, direction, gate, gates, row, unit, batch, directions, size, mask):
    """[ROWS, UNITS]: what the inputs contribute to a gate."""
    place = ((at * batch + row) * directions + direction) * (gates * size) + gate * size
    return tl.load(x + place[:, None] + unit[None, :], mask=mask, other=0).to(tl.float32)


@triton.jit
def keep(before, after, extra, count, STARTED: tl.constexpr, BLOCK: tl.constexpr):
    """A state as it was, or zeros."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.zeros((BLOCK,), after.dtype.element_ty)
    if STARTED:
        value = tl.load(before + at, mask=at < count, other=0).to(after.dtype.element_ty)
    tl.store(after + at, value, mask=at < count)


@triton.jit
def gates(
    x, weights, before, update, reset, extra, time, steps, batch, directions, size,
    BACKWARDS: tl.constexpr, STARTED: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
    TERMS: tl.constexpr, GATE: tl.constexpr,
):  # fmt: skip
    """The update gate and the state that the reset gate lets through."""
    direction, row, unit = _block(batch, size, ROWS, UNITS)
    at = _when(direction, time, steps, BACKWARDS=BACKWARDS)
    mask = (row < batch)[:, None] & (unit < size)[None, :]
    z = _given(x, at, direction, 0, 3, row, unit, batch, directions, size, mask)
    r = _given(x, at, direction, 1, 3, row, unit, batch, directions, size, mask)
    place = ((direction * batch + row) * size)[:, None] + unit[None, :]
    state = tl.zeros((ROWS, UNITS), tl.float32)
    if STARTED:
        z += _product(
            before, weights, direction, 0, 3, row, unit, batch, size, ROWS, UNITS, TERMS
        )  # fmt: skip
        r += _product(
            before, weights, direction, 1, 3, row, unit, batch, size, ROWS, UNITS, TERMS
        )  # fmt: skip
        state = tl.load(before + place, mask=mask, other=0).to(tl.float32)
    tl.store(update + place, GATE(z), mask=mask)
    tl.store(reset + place, GATE(r) * state, mask=mask)


@triton.jit
def step(
    x, weights, before, update, reset, cell, bias, peepholes, lengths, states, after, cell_after,
    extra, time, steps, batch, directions, size,
    BACKWARDS: tl.constexpr, STARTED: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
    TERMS: tl.constexpr, KIND: tl.constexpr, LINEAR: tl.constexpr, COUPLED: tl.constexpr,
    PEEPHOLES: tl.constexpr, VARYING: tl.constexpr, GATE: tl.constexpr, INNER: tl.constexpr,
    OUTER: tl.constexpr,
):  # fmt: skip
    """The next states of some units."""
    GATES: tl.constexpr = 4 if KIND == "lstm" else (3 if KIND == "gru" else 1)
    direction, row, unit = _block(batch, size, ROWS, UNITS)
    at = _when(direction, time, steps, BACKWARDS=BACKWARDS)
    mask = (row < batch)[:, None] & (unit < size)[None, :]
    place = ((direction * batch + row) * size)[:, None] + unit[None, :]
    state = tl.zeros((ROWS, UNITS), tl.float32)
    old = tl.zeros((ROWS, UNITS), tl.float32)
    if STARTED:
        state = tl.load(before + place, mask=mask, other=0).to(tl.float32)
        if KIND == "lstm":
            old = tl.load(cell + place, mask=mask, other=0).to(tl.float32)
    a = _given(x, at, direction, 0, GATES, row, unit, batch, directions, size, mask)
    new_cell = old
    if KIND == "rnn":
        if STARTED:
            a += _product(
                before, weights, direction, 0, 1, row, unit, batch, size, ROWS, UNITS, TERMS
            )  # fmt: skip
        new = INNER(a)
    elif KIND == "gru":
        n = _given(x, at, direction, 2, 3, row, unit, batch, directions, size, mask)
        if LINEAR:
            r = _given(x, at, direction, 1, 3, row, unit, batch, directions, size, mask)
            own = tl.load(bias + direction * size + unit, mask=unit < size, other=0)
            product = tl.zeros((ROWS, UNITS), tl.float32) + own.to(tl.float32)[None, :]
            if STARTED:
                a += _product(
                    before, weights, direction, 0, 3, row, unit, batch, size, ROWS, UNITS, TERMS
                )  # fmt: skip
                r += _product(
                    before, weights, direction, 1, 3, row, unit, batch, size, ROWS, UNITS, TERMS
                )  # fmt: skip
                product += _product(
                    before, weights, direction, 2, 3, row, unit, batch, size, ROWS, UNITS, TERMS
                )  # fmt: skip
            z = GATE(a)
            n += GATE(r) * product
        else:
            z = tl.load(update + place, mask=mask, other=0)
            if STARTED:
                n += _product(
                    reset, weights, direction, 2, 3, row, unit, batch, size, ROWS, UNITS, TERMS
                )  # fmt: skip
        new = (1.0 - z) * INNER(n) + z * state
    else:
        o = _given(x, at, direction, 1, 4, row, unit, batch, directions, size, mask)
        f = _given(x, at, direction, 2, 4, row, unit, batch, directions, size, mask)
        g = _given(x, at, direction, 3, 4, row, unit, batch, directions, size, mask)
        if STARTED:
            a += _product(
                before, weights, direction, 0, 4, row, unit, batch, size, ROWS, UNITS, TERMS
            )  # fmt: skip
            o += _product(
                before, weights, direction, 1, 4, row, unit, batch, size, ROWS, UNITS, TERMS
            )  # fmt: skip
            f += _product(
                before, weights, direction, 2, 4, row, unit, batch, size, ROWS, UNITS, TERMS
            )  # fmt: skip
            g += _product(
                before, weights, direction, 3, 4, row, unit, batch, size, ROWS, UNITS, TERMS
            )  # fmt: skip
        if PEEPHOLES:
            hole = peepholes + direction * (3 * size) + unit
            a += tl.load(hole, mask=unit < size, other=0).to(tl.float32)[None, :] * old
            f += tl.load(hole + 2 * size, mask=unit < size, other=0).to(tl.float32)[None, :] * old
        i = GATE(a)
        f = 1.0 - i if COUPLED else GATE(f)
        new_cell = f * old + i * INNER(g)
        if PEEPHOLES:
            by = tl.load(hole + size, mask=unit < size, other=0).to(tl.float32)[None, :]
            o += by * new_cell
        new = GATE(o) * OUTER(new_cell)
    shown = new
    if VARYING:
        there = (at < tl.load(lengths + row, mask=row < batch, other=0))[:, None] & mask
        shown = tl.where(there, new, 0.0)
        new = tl.where(there, new, state)
        new_cell = tl.where(there, new_cell, old)
    to = (((at * directions + direction) * batch + row) * size)[:, None] + unit[None, :]
    tl.store(states + to, shown.to(states.dtype.element_ty), mask=mask)
    tl.store(after + place, new.to(after.dtype.element_ty), mask=mask)
    if KIND == "lstm":
        tl.store(cell_after + place, new_cell.to(cell_after.dtype.element_ty), mask=mask)
