"""Checked code: every access of a kernel to global memory, held against its buffers.

What Triton makes is PTX, one access a line. Each gets a call in front of it that looks its address
up in a table of buffers, and is left out where the table has no buffer that holds all of its
bytes; the table's first words then say which access it was. Reads see what was in their registers
instead, so results mean nothing then. The table's address comes in the pointer that Triton's code
takes for scratch in global memory, which none of ours uses. Loads and stores by TMA stay as they
are: they reach what their tensor map says, and nothing else.

    word 0      number of the first access that was refused, counted from 1; 0 for none
    word 1      the address of one that was refused
    word 2      how many buffers there are
    word 3, 4   of the first buffer, first address and one past the last; and so on
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from saccade.backends.cuda.codegen.compile import Cubin, compiled, cubin_of
from saccade.backends.cuda.codegen.entry import Entry
from saccade.errors import CompileError

__all__ = ["TABLE_HEAD", "CheckedCubin", "checked_ptx", "compile_both"]

TABLE_HEAD = 3
"""Words of a table of buffers before the first buffer."""


@dataclass(frozen=True, slots=True)
class CheckedCubin:
    """Checked machine code.

    Attributes:
        cubin: The code; its scratch pointer takes the table of buffers.
        accesses: What each access is and on which line of the source, in the order of their
            numbers.
    """

    cubin: Cubin
    accesses: tuple[str, ...]


_LOOK_UP = """\
.func (.reg .b32 inside) within_a_buffer(
	.reg .b64 table, .reg .b64 first, .reg .b32 bytes, .reg .b32 access)
{
	.reg .pred %p<5>;
	.reg .b64 %rd<9>;
	mov.b32 inside, 1;
	setp.eq.s32 %p1, bytes, 0;
	@%p1 bra done;
	cvt.u64.u32 %rd1, bytes;
	ld.global.b64 %rd3, [table+16];
	add.s64 %rd4, table, 24;
next:
	setp.eq.s64 %p1, %rd3, 0;
	@%p1 bra outside;
	ld.global.b64 %rd5, [%rd4];
	ld.global.b64 %rd6, [%rd4+8];
	add.s64 %rd4, %rd4, 16;
	sub.s64 %rd3, %rd3, 1;
	setp.lo.u64 %p2, first, %rd5;
	@%p2 bra next;
	sub.s64 %rd2, %rd6, %rd1;
	setp.hi.u64 %p3, first, %rd2;
	@%p3 bra next;
	bra done;
outside:
	mov.b32 inside, 0;
	cvt.u64.u32 %rd7, access;
	atom.global.cas.b64 %rd8, [table], 0, %rd7;
	setp.ne.s64 %p4, %rd8, 0;
	@%p4 bra done;
	st.global.b64 [table+8], first;
done:
	ret;
}

"""
# Threads of a warp go on together, which products and copies of matrices count on. A copy to shared
# memory of no bytes, as its last operand may say, reads nothing and fills with zeros.
_CHECK = """\
	{{
	.reg .pred wanted, taken;
	.reg .b64 first, table;
	.reg .b32 bytes, inside, together;
	activemask.b32 together;
	{wanted}
	selp.b32 bytes, {bytes}, 0, wanted;
	add.s64 first, {address}, {offset};
	ld.param.b64 table, [{table}];
	call (inside), within_a_buffer, (table, first, bytes, {number});
	setp.ne.and.s32 taken, inside, 0, wanted;
	bar.warp.sync together;
	@taken {access}
{otherwise}	}}
"""
# Who waits for a copy's bytes would wait forever for one that was left out.
_NO_BYTES = """\
	setp.eq.and.s32 taken, inside, 0, wanted;
	@taken mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [{barrier}], {bytes};
"""
_GUARD = r"(?:@(?P<guard>!?%p\d+)\s+)?"
_AT = r"\[\s*(?P<address>%rd\d+)\s*(?:\+\s*(?P<offset>-?\d+)\s*)?\]"
_MOVE = re.compile(
    rf"{_GUARD}(?P<access>(?:ld|st|atom|red)\.global(?P<how>[.:\w]*)\s+(?:\{{?[^\[\]]*\}}?,\s*)?{_AT}.*;)"
)
_COPY = re.compile(
    rf"{_GUARD}(?P<access>cp\.async\.c[ag]\.shared\.global[.:\w]*\s+\[[^\]]*\],\s*{_AT},"
    r"\s*(?P<bytes>0x[0-9a-f]+|\d+)(?:,\s*(?P<size>%r\d+))?\s*;)"
)
_BULK = re.compile(
    rf"{_GUARD}(?P<access>cp\.async\.bulk\.shared::cta\.global\.mbarrier::complete_tx::bytes"
    rf"\s+\[[^\]]*\],\s*{_AT},\s*(?P<bytes>\d+),\s*\[\s*(?P<barrier>%r\d+)\s*\]\s*;)"
)
# An access without a state space may go to global memory, too.
_GLOBAL = re.compile(
    r"(?:@!?%p\d+\s+)?(?:(?:ld|st|cp|atom|red|multimem|prefetch)\.[.:\w]*global|cp\.async\.bulk"
    r"|cp\.reduce|(?:ld|st|atom|red)(?:\.(?!param|shared|local|const|async|sync)[:\w]+)+\s)"
)
_MAPPED = re.compile(
    r"(?:@!?%p\d+\s+)?cp\.async\.bulk\.(?:(?:commit|wait)_group|tensor\.\dd\.(?:im2col\.)?"
    r"(?:shared::\w+\.global|global\.shared::cta)\.)"
)
_PARAMETER = re.compile(r"\.param \.u?b?64 [^,\n]*?(\w+_param_\d+)")
_PLACE = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r"\.file\s+(\d+)\s+\"([^\"]*)\"")
_ENTRY = re.compile(r"^(?:\s*\.extern [^\n]*\n)?\s*\.visible \.entry", re.MULTILINE)


def checked_ptx(ptx: str) -> tuple[str, tuple[str, ...]]:
    """Text of a kernel whose accesses to global memory are checked, and what they are.

    Args:
        ptx: What Triton made, whose last two parameters are its pointers to scratch.

    Raises:
        CompileError: If there is an access of a kind that is not known here.
    """
    head, _, body = ptx.partition("\n)\n")
    *_, table, _ = _PARAMETER.findall(head)
    files = {number: Path(path).name for number, path in _FILE.findall(ptx)}
    accesses: list[str] = []
    lines, place = [], "an unknown line"
    for line in body.splitlines(keepends=True):
        if at := _PLACE.search(line):
            place = f"{files.get(at[1], '?')}:{at[2]}"
        found = _access(line.strip())
        if found is None:
            lines.append(line)
            continue
        accesses.append(f"{found['access'].split()[0]} at {place}")
        lines.append(_checked(found, table, len(accesses)))
    start = _ENTRY.search(head)
    if start is None:
        raise CompileError("the PTX has no entry")
    head = f"{head[: start.start()]}{_LOOK_UP}{head[start.start() :]}"
    return f"{head}\n)\n{''.join(lines)}", tuple(accesses)


def _access(line: str) -> re.Match[str] | None:
    """A line's access to global memory, if it is one."""
    found = _MOVE.fullmatch(line) or _COPY.fullmatch(line) or _BULK.fullmatch(line)
    if found is None and _GLOBAL.match(line) and not _MAPPED.match(line):
        # Or an access that nobody looks at would pass for a checked one.
        raise CompileError(f"checked code has no check for {line}")
    return found


def _checked(found: re.Match[str], table: str, number: int) -> str:
    named = found.groupdict()
    guard = named["guard"]
    if guard is None:
        wanted = "setp.eq.s32 wanted, 0, 0;"
    else:
        wanted = f"{'not' if guard.startswith('!') else 'mov'}.pred wanted, {guard.lstrip('!')};"
    otherwise = _NO_BYTES.format(**named) if named.get("barrier") else ""
    return _CHECK.format(
        otherwise=otherwise,
        wanted=wanted,
        address=named["address"],
        offset=named["offset"] or 0,
        bytes=named.get("size") or named.get("bytes") or _width(named["how"]),
        table=table,
        number=number,
        access=named["access"],
    )


def _width(how: str) -> int:
    """Bytes of an access, by what stands behind its name."""
    kinds = how.split(".")
    bits = next(int(kind[1:]) for kind in kinds if re.fullmatch(r"[busf]\d+", kind))
    return bits // 8 * next((int(kind[1:]) for kind in kinds if re.fullmatch(r"v\d", kind)), 1)


def compile_both(entry: Entry, arch: int, aligned: Sequence[str]) -> tuple[Cubin, CheckedCubin]:
    """An entry's machine code as it is run, and checked.

    Args:
        entry: What to compile.
        arch: Compute capability, 90 for `sm_90`.
        aligned: Pointers, and integers of `entry.multiples`, that are multiples of 16.

    Raises:
        CompileError: If Triton cannot compile it, or it has an access that cannot be checked.
    """
    made = compiled(entry, arch, aligned)
    text, accesses = checked_ptx(made.asm["ptx"])
    code = _assembled(text, arch, contract=entry.contract)
    plain = cubin_of(made, made.asm["cubin"], entry, arch)
    return plain, CheckedCubin(cubin_of(made, code, entry, arch), accesses)


def _assembled(ptx: str, arch: int, *, contract: bool) -> bytes:
    """Machine code of a text, made by the assembler that Triton takes for the architecture."""
    from triton.backends.nvidia.compiler import get_ptxas  # noqa: PLC0415 - as in `compiled`

    # Triton's own name of it, sm_90a for 90: code for sm_90 has no asynchronous products.
    (target,) = re.findall(r"^\.target (\w+)", ptx, re.MULTILINE)
    # As Triton calls it for the plain code, or results would differ in their last bits.
    options = [f"--gpu-name={target}", *([] if contract else ["--fmad=false"])]
    with TemporaryDirectory() as folder:
        source, made = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [get_ptxas(arch).path, *options, str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(f"ptxas: {done.stderr.strip()}")
        return made.read_bytes()
