"""The code of convolutions over short lattices: transform, products, transform back."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.lattice_forms import Form, LatticeAxis, Lattices
from saccade.kernels.cpu.conv2d.lattice_points import forward, inverse, points_of
from saccade.kernels.cpu.conv2d.winograd_gemm import Shape, emit_rows

__all__ = ["LatticeConfig", "LatticeSizes", "emit_lattices"]


@dataclass(frozen=True, slots=True)
class LatticeConfig:
    """What the code depends on.

    Attributes:
        stage: `input`, `products` or `output`.
        rows, columns: Pixels of long lattices down and along, see `lattice_forms.LONG`; 0 for
            products, which take any.
        heights: Numbers of rows whose sums stay in registers, the largest first (of products).
        nv: Vectors of filters in a panel.
        ahead: How many vectors of weights ahead of use are asked for.
        x: Element type of the image.
        epilogue: `EpilogueSpec.code`, () where a stage stores no result.
    """

    stage: str
    rows: int = 0
    columns: int = 0
    heights: tuple[int, ...] = ()
    nv: int = 1
    ahead: int = 0
    x: str = "float32"
    epilogue: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LatticeSizes:
    """Integer parameters; all stages declare all of them.

    Attributes:
        blocks: Into how many blocks the tiles of a form are divided.
        images: Images.
        long_rows, short_rows, long_columns, short_columns: How many lattices have which length.
        row_points, column_points: Frequencies down and along.
        short_row_points, short_column_points: Those that short lattices have.
        row_step, column_step: Distance of taps.
        channels: Length of the sums.
        v_block: Elements of V from one vector of channels to the next.
        v_step, m_step: Elements of V and M from frequency to frequency.
        panels, vectors: Panels, and vectors of filters.
        x_n, x_h, x_w: Elements between images, rows and columns of the image.
    """

    blocks: Int
    images: Int
    long_rows: Int
    short_rows: Int
    long_columns: Int
    short_columns: Int
    row_points: Int
    column_points: Int
    short_row_points: Int
    short_column_points: Int
    row_step: Int
    column_step: Int
    channels: Int
    v_block: Int
    v_step: Int
    m_step: Int
    panels: Int
    vectors: Int
    x_n: Int
    x_h: Int
    x_w: Int


@dataclass(frozen=True, slots=True)
class _LatticeCode:
    """Emits the stages of one config."""

    k: KernelBuilder
    c: LatticeConfig
    s: LatticeSizes

    @property
    def lattices(self) -> Lattices:
        s, c = self.s, self.c
        down = LatticeAxis(
            c.rows, (s.long_rows, s.short_rows), (s.row_points, s.short_row_points), s.row_step
        )
        along = LatticeAxis(
            c.columns, (s.long_columns, s.short_columns), (s.column_points, s.short_column_points),
            s.column_step,
        )  # fmt: skip
        return Lattices(s.images, (down, along))

    @property
    def squares(self) -> Int:
        """Frequencies."""
        return self.s.row_points * self.s.column_points

    @property
    def panel(self) -> int:
        return self.c.nv * self.k.lanes

    def share(self, form: Form, block: Int) -> tuple[Int, Int]:
        """The tiles of a form that belong to a block: the first, and one past the last."""
        size = self.lattices.size(form)
        return size * block // self.s.blocks, size * (block + 1) // self.s.blocks

    def forward(self, x: Ptr, v: Ptr, form: Form, tiles: tuple[Int, Int]) -> None:
        """The pixels of some tiles into their rows of `v`."""
        k, s = self.k, self.s
        first = v + self.lattices.first(k, form) * k.lanes
        with k.range(*tiles) as tile:
            image, row, column = self.lattices.pixel(form, tile)
            corner = x + (s.x_n * image + s.x_h * row + s.x_w * column)
            with k.range(0, s.channels, k.lanes) as c:
                block = first + (c // k.lanes * s.v_block + tile * k.lanes)
                self._forward_vector(corner + c, k.first(s.channels - c), form, block)

    def _forward_vector(self, corner: Ptr, mask: Mask, form: Form, target: Ptr) -> None:
        k, s, (b, c) = self.k, self.s, self.lattices.bases
        down, along = form.pixels
        step_h, step_w = s.x_h * s.row_step, s.x_w * s.column_step
        columns = [
            forward(k, b, [corner.vec(step_h * i + step_w * j, mask) for i in range(down)])
            for j in range(along)
        ]
        for f, line in enumerate(zip(*columns, strict=True)):
            for g, value in enumerate(forward(k, c, line)):
                target.store(value, s.v_step * (s.column_points * f + g))

    def products(self, v: Ptr, u: Ptr, m: Ptr, f: Int) -> None:
        """Rows of `v` that have a frequency, times one panel `u`, into `m`."""
        along = self.s.column_points
        down = f // along
        first, count = self.lattices.rows_with(self.k, down, f - down * along)
        shape = Shape(count, self.s.channels, self.s.v_block, self.c.ahead)
        matrices = (v + first * self.k.lanes, u, m + first * self.panel)
        emit_rows(self.k, shape, matrices, self.c.heights, self.c.nv)

    def back(self, m: Ptr, stage: Ptr, ep: Epilogue, form: Form, tile: Int, panel: Int) -> None:
        """A tile's row of the panel `m` into the result."""
        k, s, lattices = self.k, self.s, self.lattices
        image, row, column = lattices.pixel(form, tile)
        source = m + (lattices.first(k, form) + tile) * self.panel
        first = panel * self.c.nv
        with k.range(0, k.minimum_int(s.vectors - first, self.c.nv)) as j:
            place = ep.place(first + j)
            for number, value in enumerate(self._results(source + j * k.lanes, form)):
                stage.store(value, number * k.lanes)
            with k.range(0, form.pixels[0]) as i, k.range(0, form.pixels[1]) as at:
                pixel = ep.pixel(image, row + i * s.row_step, column + at * s.column_step)
                ep.finish(stage.vec((i * form.pixels[1] + at) * k.lanes), pixel, place)

    def _results(self, source: Ptr, form: Form) -> list[Vec]:
        """The pixels of a tile, row by row."""
        k, step, pitch = self.k, self.s.m_step, self.s.column_points
        (b, c), (down, along) = self.lattices.bases, form.pixels
        columns = [
            inverse(
                k, b, down, [source.vec(step * (pitch * f + g)) for f in range(points_of(b, down))]
            )
            for g in range(points_of(c, along))
        ]
        rows = zip(*columns, strict=True)
        return [value for row in rows for value in inverse(k, c, along, row)]


def emit_lattices(k: KernelBuilder, config: LatticeConfig) -> None:
    """Emit one phase."""
    {"input": _emit_input, "products": _emit_products, "output": _emit_output}[config.stage](
        k, config
    )


def _emit_input(k: KernelBuilder, config: LatticeConfig) -> None:
    x, v = k.pointer("x", config.x), k.pointer("v")
    code = _LatticeCode(k, config, k.sizes(LatticeSizes))
    with k.chunks(code.s.blocks) as chunk:
        for form in code.lattices.forms:
            code.forward(x, v, form, code.share(form, chunk))


def _emit_products(k: KernelBuilder, config: LatticeConfig) -> None:
    v, u, m = k.pointer("v"), k.pointer("u"), k.pointer("m")
    code = _LatticeCode(k, config, k.sizes(LatticeSizes))
    s, squares = code.s, code.squares
    with k.chunks(s.panels * squares) as chunk:
        f = chunk // s.panels
        panel = chunk - f * s.panels
        weights = u + chunk * s.channels * code.panel
        code.products(v + f * s.v_step, weights, m + (panel * squares + f) * s.m_step, f)


def _emit_output(k: KernelBuilder, config: LatticeConfig) -> None:
    m, stage = k.pointer("m"), k.scratch("stage_tile")
    epilogue = Epilogue(k, config.epilogue)
    code = _LatticeCode(k, config, k.sizes(LatticeSizes))
    epilogue.declare_integers()
    s, squares = code.s, code.squares
    with k.chunks(s.blocks * s.panels) as chunk:
        block = chunk // s.panels
        panel = chunk - block * s.panels
        for form in code.lattices.forms:
            with k.range(*code.share(form, block)) as tile:
                products = m + panel * squares * s.m_step
                code.back(products, stage, epilogue, form, tile, panel)
