"""The code of attention by rows: scores of a chunk, their powers, and the sums of values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saccade.backends.cpu.codegen import math
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, IntLike, Mask, Vec
from saccade.kernels.cpu.attention.rows_config import AttentionRowsConfig
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.microkernel import Reduction, accumulate, anchored, zero_sums
from saccade.kernels.cpu.matmul.direct_config import MatMulConfig
from saccade.kernels.cpu.matmul.operand_panels import emit_pack
from saccade.kernels.cpu.normalize.axis_sweep import across_lanes
from saccade.kernels.cpu.pointwise.vector_elements import load

__all__ = ["emit_rows"]

_UNROLL = 4  # vectors of a sweep through a row, so that sums do not wait for each other


@dataclass(frozen=True, slots=True)
class _AttentionSizes:
    """The integer parameters; strides in elements, of panels those of whole panels."""

    q_0: Int
    q_1: Int
    q_m: Int
    q_d: Int
    k_0: Int
    k_1: Int
    k_d: Int
    v_0: Int
    v_1: Int
    v_s: Int
    inner_batch: Int
    rows: Int
    keys: Int
    head: Int
    width: Int
    share: Int
    pitch: Int
    sums_pitch: Int
    row_chunks: Int
    chunks: Int


@dataclass(frozen=True, slots=True)
class _MaskSizes:
    """Those of the mask: after how many heads it begins anew, and its strides."""

    mask_n0: Int
    mask_n1: Int
    mask_0: Int
    mask_1: Int
    mask_m: Int


@dataclass(frozen=True, slots=True)
class _HeadRows:
    """Rows `first … stop - 1` of a head, whose mask begins at an offset."""

    head: tuple[Int, Int]
    first: Int
    stop: Int
    mask: Int


def emit_rows(k: KernelBuilder, config: AttentionRowsConfig) -> None:
    """The code of one configuration."""
    if config.phase == "pack":
        emit_pack(k, MatMulConfig("pack", config.vectors, shape=config.shape))
    else:
        _Attending(k, config).emit()


class _Attending:
    """Emits phase `attend`."""

    def __init__(self, k: KernelBuilder, config: AttentionRowsConfig) -> None:
        self.k, self.config = k, config
        self.q, self.keys, self.values = (k.pointer(name) for name in "qkv")
        self.mask = k.pointer("mask") if config.mask else None
        self.scores, self.totals = k.scratch("scores"), k.scratch("totals")
        if config.part:
            self.sums, self.tops = k.scratch("sums"), k.scratch("tops")
        self.epilogue = Epilogue(k, config.epilogue)
        self.g = k.sizes(_AttentionSizes)
        self.masked = k.sizes(_MaskSizes) if config.mask else None
        self.epilogue.declare_integers()

    def emit(self) -> None:
        """All chunks."""
        k, g, config = self.k, self.g, self.config
        with k.chunks(g.chunks) as number:
            matrix = number // g.row_chunks
            first = (number - matrix * g.row_chunks) * g.share
            outer = matrix // g.inner_batch
            head = (outer, matrix - outer * g.inner_batch)
            stop = k.minimum_int(first + g.share, g.rows)
            chunk = _HeadRows(head, first, stop, self._mask_of(head))
            if not config.part:
                self._part(chunk, k.int(0), g.keys)
                return
            self._begin(chunk)
            with k.range(0, g.keys, config.part) as key:
                self._part(chunk, key, k.minimum_int(g.keys - key, config.part))
            self._end(chunk)

    def _part(self, chunk: _HeadRows, key: Int, count: Int) -> None:
        """So many keys from one on, which begins a block: scores, powers, sums of values."""
        k, g, config = self.k, self.g, self.config
        width = config.vectors * k.lanes
        block = key // width
        last = k.maximum_int((g.keys - 1) // width, 0)
        rows = chunk.first, chunk.stop
        with (
            k.range(block, k.minimum_int(block + (count + (width - 1)) // width, last)) as at,
            k.range(*rows, config.rows) as row,
        ):
            self._scores(chunk, at, key, row, ends=False)
        with k.when((key + count).equals(g.keys)), k.range(*rows, config.last_rows) as row:
            self._scores(chunk, last, key, row, ends=True)
        with k.range(*rows) as row:
            self._powers(chunk, row, key, count)
        width = config.value_vectors * k.lanes
        with (
            k.range(0, (g.width + (width - 1)) // width) as at,
            k.range(*rows, config.value_rows) as row,
        ):
            self._values(chunk, at, row, key, count)

    def _begin(self, chunk: _HeadRows) -> None:
        """No key has been met."""
        k = self.k
        with k.range(0, chunk.stop - chunk.first) as row:
            self.tops.store(k.number(float("-inf"), 1), row)
            self.totals.store(k.number(0.0, 1), row)
            self._each_sum(row, lambda _: k.zero())

    def _each_sum(self, row: Int, value: Callable[[Vec], Vec]) -> None:
        """Other values for the sums of a row."""
        k, line = self.k, self.sums + row * self.g.sums_pitch
        with k.range(0, self.g.sums_pitch, k.lanes) as at:
            line.store(value(line.vec(at)), at)

    def _end(self, chunk: _HeadRows) -> None:
        """The results of a chunk."""
        k, config = self.k, self.config
        with k.range(chunk.first, chunk.stop) as number:
            row = number - chunk.first
            total = self.totals.splat(row)
            if config.hidden:
                # Every weight is NaN where each key is masked by -inf, or one is no number.
                undefined = ~total.compare(">", 0.0)
                total = undefined.select(k.number(1.0), total)
                with k.when(k.any_lane(undefined)):
                    self._each_sum(row, lambda _: k.zero())
            pixel = self.epilogue.pixel(*chunk.head, number)
            line = self.sums + row * self.g.sums_pitch
            with k.range(0, self.g.sums_pitch // k.lanes) as vector:
                place = self.epilogue.place(vector)
                self.epilogue.finish(line.vec(vector * k.lanes) * (1.0 / total), pixel, place)

    def _scores(self, chunk: _HeadRows, block: Int, key: Int, first: Int, *, ends: bool) -> None:
        """A tile of scores, in the last block of keys (`ends`) or not; rows begin with `key`."""
        k, g, config = self.k, self.g, self.config
        vectors = config.last_vectors if ends else config.vectors
        count = config.last_rows if ends else config.rows
        sums = zero_sums(k, count, vectors)
        # Rows past the last repeat it; scratch has room for them.
        numbers = [k.minimum_int(first + i, g.rows - 1) for i in range(count)]
        q = self.q + (chunk.head[0] * g.q_0 + chunk.head[1] * g.q_1)
        rows = [anchored(k, q + number * g.q_m) for number in numbers]
        panel, pitch = self._panel(
            self.keys + (chunk.head[0] * g.k_0 + chunk.head[1] * g.k_1), block, config.vectors,
            g.head, g.k_d, packed=config.keys_packed,
        )  # fmt: skip
        # Of other blocks every key is there.
        left = self._left(block, config.vectors, g.keys)[:vectors] if ends else [None] * vectors
        accumulate(
            k, sums, rows, panel, step=1 if config.unit else g.q_d, pitch=pitch, count=g.head,
            reduction=Reduction(config.unroll, config.shape),
            masks=None if config.keys_packed else left,
        )  # fmt: skip
        for i, totals in enumerate(sums):
            line = self.scores + (first - chunk.first + i) * g.pitch
            for j, total in enumerate(totals):
                score = total.get()
                if config.scale != 1.0 and not config.mask:
                    score = score * config.scale
                line.store(score, (block * config.vectors + j) * k.lanes - key)

    def _mask_of(self, head: tuple[Int, Int]) -> Int:
        """Where a head's mask begins."""
        m, (outer, inner) = self.masked, head
        if m is None:
            return self.k.int(0)
        again = (outer - outer // m.mask_n0 * m.mask_n0, inner - inner // m.mask_n1 * m.mask_n1)
        return again[0] * m.mask_0 + again[1] * m.mask_1

    def _panel(
        self, matrix: Ptr, block: Int, vectors: int, steps: Int, pitch: Int, *, packed: bool
    ) -> tuple[Ptr, IntLike]:
        """The block's vectors of a matrix, and how far apart those of two steps are."""
        width = vectors * self.k.lanes
        if packed:
            return anchored(self.k, matrix + block * steps * width), width
        return anchored(self.k, matrix + block * width), pitch

    def _left(self, block: Int, vectors: int, count: Int) -> list[Mask]:
        """Which lanes of a block's vectors there are."""
        k = self.k
        left = count - block * (vectors * k.lanes)
        return [k.first(left - j * k.lanes) for j in range(vectors)]

    def _powers(self, chunk: _HeadRows, number: Int, key: Int, count: Int) -> None:
        """A row of scores becomes powers, of which the largest is 1, and what they are in all."""
        k, config, row = self.k, self.config, number - chunk.first
        line = self.scores + row * self.g.pitch
        start = None if self.masked is None else chunk.mask + number * self.masked.mask_m

        def met(score: Vec, at: Int, inside: Mask | None) -> Vec:
            if start is None or self.mask is None:
                return score
            # Row by row, as memory is asked for neighbours ahead of time.
            found = load(k, self.mask, config.mask, start, key + at, k.int(1), inside, k.lanes)
            score = score * config.scale + found if config.scale != 1.0 else score + found
            line.store(score, at)
            return score

        top = self._swept(line, count, met, k.maximum, float("-inf"))
        before = top
        if config.part:
            before = self.tops.splat(row)
            top = k.maximum(top, before)
            self.tops.store(k.extract(top, 0), row)
            # Where no key counts yet, powers are to be 0.
            top = top.compare("==", float("-inf")).select(k.zero(), top)

        def power(score: Vec, at: Int, _: Mask | None) -> Vec:
            value = math.exp(k, score - top)
            line.store(value, at)
            return value

        total = self._swept(line, count, power, lambda a, b: a + b, 0.0)
        if config.part:
            factor = math.exp(k, before - top)
            total = total + self.totals.splat(row) * factor
            self.totals.store(k.extract(total, 0), row)
            with k.when(k.any_lane(factor.compare("!=", 1.0))):
                self._each_sum(row, lambda value: value * factor)
            return
        if not config.hidden:
            self.totals.store(k.extract(total, 0), row)
            return
        # All of a row's weights are NaN, or none.
        undefined = math.is_nan(total)
        self.totals.store(k.extract(undefined.select(k.number(1.0), total), 0), row)
        with k.when(k.any_lane(undefined)):
            self._swept(line, count, lambda _, at, __: self._cleared(line, at), lambda a, _: a, 0.0)

    def _cleared(self, line: Ptr, at: Int) -> Vec:
        zero = self.k.zero()
        line.store(zero, at)
        return zero

    def _swept(
        self,
        line: Ptr,
        keys: Int,
        visit: Callable[[Vec, Int, Mask | None], Vec],
        combine: Callable[[Vec, Vec], Vec],
        start: float,
    ) -> Vec:
        """What `visit` makes of a row's vectors, combined, in every lane.

        It is given where they are, and which lanes there are where some are not.
        """
        k, lanes = self.k, self.k.lanes
        neutral = k.number(start, lanes)
        totals = [k.var(neutral) for _ in range(_UNROLL)]
        low: Int = k.int(0)
        for many in (_UNROLL, 1):
            stop = low + (keys - low) // (many * lanes) * (many * lanes)
            with k.range(low, stop, many * lanes) as at:
                for total, u in zip(totals, range(many), strict=False):
                    place = at + u * lanes
                    total.set(combine(total.get(), visit(line.vec(place), place, None)))
            low = stop
        with k.when(low < keys):
            inside = k.first(keys - low)
            value = inside.select(visit(line.vec(low), low, inside), neutral)
            totals[0].set(combine(totals[0].get(), value))
        first, second, third, fourth = (total.get() for total in totals)
        whole = combine(combine(first, second), combine(third, fourth))
        return across_lanes(k, whole, combine)

    def _values(self, chunk: _HeadRows, block: Int, first: Int, key: Int, count: Int) -> None:
        """A tile of sums of values; those of all keys are divided by their powers' sum."""
        k, g, config = self.k, self.g, self.config
        vectors, rows = config.value_vectors, config.value_rows
        sums = zero_sums(k, rows, vectors)
        numbers = [k.minimum_int(first + i, chunk.stop - 1) - chunk.first for i in range(rows)]
        lines = [anchored(k, self.scores + number * g.pitch) for number in numbers]
        panel, pitch = self._panel(
            self.values + (chunk.head[0] * g.v_0 + chunk.head[1] * g.v_1), block, vectors, g.keys,
            g.v_s, packed=config.values_packed,
        )  # fmt: skip
        masks = self._left(block, vectors, g.width)
        whole = config.values_packed or ":tail:" not in config.epilogue[1]
        if config.part:
            kept = [self.sums + number * g.sums_pitch for number in numbers]
            places = [(block * vectors + j) * k.lanes for j in range(vectors)]
            for tile, line in zip(sums, kept, strict=True):
                for total, at, mask in zip(tile, places, masks, strict=True):
                    total.set(line.vec(at, mask))
        accumulate(
            k, sums, lines, anchored(k, panel + key * pitch), step=1, pitch=pitch, count=count,
            reduction=Reduction(4, "tail"), masks=None if whole else list(masks),
        )  # fmt: skip
        if config.part:
            for tile, line in zip(sums, kept, strict=True):
                for total, at, mask in zip(tile, places, masks, strict=True):
                    line.store(total.get(), at, mask)
            return
        each = [self.epilogue.place(block * vectors + j) for j in range(vectors)]
        for i, tile in enumerate(sums):
            with k.when(first + i < chunk.stop):
                share = 1.0 / self.totals.splat(first + i - chunk.first)
                pixel = self.epilogue.pixel(*chunk.head, first + i)
                for total, place in zip(tile, each, strict=True):
                    self.epilogue.finish(total.get() * share, pixel, place)
