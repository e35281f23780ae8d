"""The native driver: every thread of a team walks the whole table of steps; barriers between steps.

Five functions in LLVM IR, written as text because they are a fixed piece of systems code, not a
kernel:

    saccade_walk(job*, thread)    walk the table of one run
    saccade_run(team*, job*)      publish a job, wake the workers, walk it as thread 0
    saccade_worker(self*)         a worker's life: wait for a job, walk it, wait again
    saccade_region(entry*)        one thread of somebody else's pool: ask who it is, walk the job
    saccade_clock()               the counter of profiles

Memory, in 64-bit words:

    job    0 phases*  1 count  2 bases*  3 counters* (phase by phase one for each thread,
           8 words apart; they hold 0, but a thread that is alone sees to that itself)
           4 team*  5 width  6 fault*  7 clock* or 0
    phase  0 code*  1 arguments*
    team   0 generation  8 job*  16 sleeping workers  24 stop  32 arrivals  40 epoch
           48 sleepers at the barrier  56 pauses, 57 pauses and yields at a barrier
           58 pauses, 59 pauses and yields between runs
    self   0 team*  1 thread  2 generation seen  3 thread id, once it runs
    entry  0 job*  1 function that gives the thread  2 function that gives the width (both int32)

Generation, arrivals and epoch only ever grow, so a slow thread never mistakes a new run for an old
one. A thread that spins too long sleeps on a futex (the low half of generation or epoch).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from saccade.backends.cpu.target import Target, host_target
from saccade.locks import forkless

if TYPE_CHECKING:
    from saccade.backends.cpu.runtime.image import Linked

__all__ = [
    "JOB_WORDS",
    "TEAM_WORDS",
    "Driver",
    "compile_driver",
    "driver",
    "driver_code",
    "nanoseconds_per_tick",
    "provide",
    "provide_code",
]

JOB_WORDS = 8  # of 8 bytes: phases, their number, bases, counters, team, width, fault, clock
TEAM_WORDS = 64  # of 8 bytes: what threads wait on has lines of cache of its own
_SYMBOLS = ("saccade_run", "saccade_walk", "saccade_worker", "saccade_region", "saccade_clock")

_TEXT = """
target triple = "{triple}"
declare i64 @syscall(i64, ...)
declare i64 @llvm.readcyclecounter()
{declare_relax}

define i64 @saccade_clock() {{
  %t = call i64 @llvm.readcyclecounter()
  ret i64 %t
}}

define internal void @wait(ptr %word, i64 %seen) {{
  %low = trunc i64 %seen to i32
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i32 128, i32 %low, ptr null)
  ret void
}}

define internal void @wake(ptr %word) {{
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i32 129, i32 2147483647)
  ret void
}}

; Returns once *word >= target: pauses first, then yields, then sleeps. Yielding keeps the thread
; runnable, so that the scheduler sees two threads that share a core and moves one; a sleeping one
; would be woken on the core of its waker.
define internal void @await(ptr %word, i64 %target, ptr %sleepers, i64 %spins, i64 %patience) {{
entry:
  br label %spin
spin:
  %n = phi i64 [ 0, %entry ], [ %n1, %pause ], [ %n1, %yield ]
  %v = load atomic i64, ptr %word acquire, align 8
  %ready = icmp sge i64 %v, %target
  br i1 %ready, label %done, label %again
again:
  %n1 = add i64 %n, 1
  %fresh = icmp slt i64 %n1, %spins
  br i1 %fresh, label %pause, label %tired
pause:
  {relax}
  br label %spin
tired:
  %more = icmp slt i64 %n1, %patience
  br i1 %more, label %yield, label %doze
yield:
  %y = call i64 (i64, ...) @syscall(i64 {sched_yield})
  br label %spin
doze:
  %s0 = atomicrmw add ptr %sleepers, i64 1 seq_cst
  br label %check
check:
  %w = load atomic i64, ptr %word seq_cst, align 8
  %ready2 = icmp sge i64 %w, %target
  br i1 %ready2, label %awake, label %sleep
sleep:
  call void @wait(ptr %word, i64 %w)
  br label %check
awake:
  %s1 = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  br label %done
done:
  ret void
}}

define internal void @barrier(ptr %team, i64 %width) {{
  %arrivals = getelementptr i64, ptr %team, i64 32
  %epoch = getelementptr i64, ptr %team, i64 40
  %sleepers = getelementptr i64, ptr %team, i64 48
  %spinsp = getelementptr i64, ptr %team, i64 56
  %old = atomicrmw add ptr %arrivals, i64 1 acq_rel
  %before = udiv i64 %old, %width
  %target = add i64 %before, 1
  %mine = add i64 %old, 1
  %full = mul i64 %target, %width
  %last = icmp eq i64 %mine, %full
  br i1 %last, label %release, label %hold
release:
  store atomic i64 %target, ptr %epoch seq_cst, align 8
  %s = load atomic i64, ptr %sleepers seq_cst, align 8
  %any = icmp sgt i64 %s, 0
  br i1 %any, label %rouse, label %out
rouse:
  call void @wake(ptr %epoch)
  ret void
hold:
  %spins = load i64, ptr %spinsp
  %patiencep = getelementptr i64, ptr %team, i64 57
  %patience = load i64, ptr %patiencep
  call void @await(ptr %epoch, i64 %target, ptr %sleepers, i64 %spins, i64 %patience)
  ret void
out:
  ret void
}}

define void @saccade_walk(ptr %job, i64 %thread) {{
entry:
  %context = alloca [6 x i64], align 64
  %phases = load ptr, ptr %job
  %countp = getelementptr i64, ptr %job, i64 1
  %count = load i64, ptr %countp
  %basesp = getelementptr i64, ptr %job, i64 2
  %bases = load i64, ptr %basesp
  %countersp = getelementptr i64, ptr %job, i64 3
  %counters = load ptr, ptr %countersp
  %teamp = getelementptr i64, ptr %job, i64 4
  %team = load ptr, ptr %teamp
  %widthp = getelementptr i64, ptr %job, i64 5
  %width = load i64, ptr %widthp
  %faultp = getelementptr i64, ptr %job, i64 6
  %fault = load i64, ptr %faultp
  %clockp = getelementptr i64, ptr %job, i64 7
  %clock = load ptr, ptr %clockp
  %timed = icmp ne ptr %clock, null
  %together = icmp sgt i64 %width, 1
  store i64 %bases, ptr %context
  %c1 = getelementptr i64, ptr %context, i64 1
  %c2 = getelementptr i64, ptr %context, i64 2
  store i64 %width, ptr %c2
  %c3 = getelementptr i64, ptr %context, i64 3
  store i64 %thread, ptr %c3
  %c4 = getelementptr i64, ptr %context, i64 4
  store i64 %fault, ptr %c4
  %c5 = getelementptr i64, ptr %context, i64 5
  store i64 %width, ptr %c5
  %apart = mul i64 %width, 8
  %rowlen = mul i64 %width, 2
  %column = mul i64 %thread, 2
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %tail ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %end
body:
  %p2 = mul i64 %i, 2
  %phase = getelementptr i64, ptr %phases, i64 %p2
  %code = load ptr, ptr %phase
  %argsp = getelementptr i64, ptr %phase, i64 1
  %args = load ptr, ptr %argsp
  %far = mul i64 %i, %apart
  %counter = getelementptr i64, ptr %counters, i64 %far
  %counteri = ptrtoint ptr %counter to i64
  store i64 %counteri, ptr %c1
  br i1 %together, label %begin, label %clear
clear:
  store i64 0, ptr %counter
  br label %begin
begin:
  br i1 %timed, label %start, label %work
start:
  %row = mul i64 %i, %rowlen
  %at = add i64 %row, %column
  %slot = getelementptr i64, ptr %clock, i64 %at
  %t0 = call i64 @llvm.readcyclecounter()
  store i64 %t0, ptr %slot
  br label %work
work:
  call void %code(ptr %args, ptr %context)
  br i1 %timed, label %stop, label %meet
stop:
  %row1 = mul i64 %i, %rowlen
  %at1 = add i64 %row1, %column
  %at2 = add i64 %at1, 1
  %slot1 = getelementptr i64, ptr %clock, i64 %at2
  %t1 = call i64 @llvm.readcyclecounter()
  store i64 %t1, ptr %slot1
  br label %meet
meet:
  br i1 %together, label %join, label %tail
join:
  call void @barrier(ptr %team, i64 %width)
  br label %tail
tail:
  %next = add i64 %i, 1
  br label %head
end:
  ret void
}}

define void @saccade_run(ptr %team, ptr %job) {{
  %jobp = getelementptr i64, ptr %team, i64 8
  store ptr %job, ptr %jobp
  %gen = atomicrmw add ptr %team, i64 1 seq_cst
  %sleepers = getelementptr i64, ptr %team, i64 16
  %s = load atomic i64, ptr %sleepers seq_cst, align 8
  %any = icmp sgt i64 %s, 0
  br i1 %any, label %rouse, label %go
rouse:
  call void @wake(ptr %team)
  br label %go
go:
  call void @saccade_walk(ptr %job, i64 0)
  ret void
}}

; All threads of a region store the same width, and each reads what it stored itself.
define void @saccade_region(ptr %entry) {{
  %job = load ptr, ptr %entry
  %threadp = getelementptr i64, ptr %entry, i64 1
  %ask_thread = load ptr, ptr %threadp
  %widthp = getelementptr i64, ptr %entry, i64 2
  %ask_width = load ptr, ptr %widthp
  %t = call i32 %ask_thread()
  %thread = sext i32 %t to i64
  %w = call i32 %ask_width()
  %width = sext i32 %w to i64
  %wordp = getelementptr i64, ptr %job, i64 5
  store atomic i64 %width, ptr %wordp monotonic, align 8
  call void @saccade_walk(ptr %job, i64 %thread)
  ret void
}}

define ptr @saccade_worker(ptr %self) {{
entry:
  %team = load ptr, ptr %self
  %threadp = getelementptr i64, ptr %self, i64 1
  %thread = load i64, ptr %threadp
  %seenp = getelementptr i64, ptr %self, i64 2
  %seen = load i64, ptr %seenp
  %sleepers = getelementptr i64, ptr %team, i64 16
  %spinsp = getelementptr i64, ptr %team, i64 58
  %patiencep = getelementptr i64, ptr %team, i64 59
  %stopp = getelementptr i64, ptr %team, i64 24
  %jobp = getelementptr i64, ptr %team, i64 8
  %id = call i64 (i64, ...) @syscall(i64 {gettid})
  %idp = getelementptr i64, ptr %self, i64 3
  store atomic i64 %id, ptr %idp release, align 8
  br label %next
next:
  %last = phi i64 [ %seen, %entry ], [ %now, %job ]
  %now = add i64 %last, 1
  %spins = load i64, ptr %spinsp
  %patience = load i64, ptr %patiencep
  call void @await(ptr %team, i64 %now, ptr %sleepers, i64 %spins, i64 %patience)
  %stop = load atomic i64, ptr %stopp acquire, align 8
  %leave = icmp ne i64 %stop, 0
  br i1 %leave, label %out, label %job
job:
  %work = load ptr, ptr %jobp
  call void @saccade_walk(ptr %work, i64 %thread)
  br label %next
out:
  ret ptr null
}}
"""


class Driver:
    """The driver's entry points in this process."""

    def __init__(self, linked: Linked) -> None:
        self._linked = linked
        self.worker = linked.addresses["saccade_worker"]
        """Address to start a thread at; its argument is the worker's `self`."""
        self.region = linked.addresses["saccade_region"]
        """Address of what each thread of a borrowed pool is to call; its argument is an entry."""
        void2 = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        self.run = void2(linked.addresses["saccade_run"])
        """`run(team, job)`; lets go of the GIL."""
        self.walk = void2(linked.addresses["saccade_walk"])
        """`walk(job, thread)`; lets go of the GIL."""
        self.clock = ctypes.CFUNCTYPE(ctypes.c_int64)(linked.addresses["saccade_clock"])
        """Reads the counter that profiles are measured with."""


def driver_text(target: Target) -> str:
    """The driver as LLVM IR."""
    arm = target.isa == "neon"
    relax = "call void @llvm.aarch64.hint(i32 1)" if arm else "call void @llvm.x86.sse2.pause()"
    hint, pause = "@llvm.aarch64.hint(i32)", "@llvm.x86.sse2.pause()"
    declare = f"declare void {hint if arm else pause}"
    return _TEXT.format(
        triple=target.triple,
        relax=relax,
        declare_relax=declare,
        futex=98 if arm else 202,
        sched_yield=124 if arm else 24,
        gettid=178 if arm else 186,
    )


def compile_driver(target: Target) -> bytes:
    """The driver's object code."""
    with forkless:
        from saccade.backends.cpu.codegen.compile import object_code  # noqa: PLC0415 - a warm start has it linked

    with forkless:
        return object_code(driver_text(target), target)


def driver_code(target: Target, make: Callable[[Target], bytes], *, disk: bool) -> bytes:
    """The driver's object code, from the folder on disk if it may be used and has it."""
    known = _codes.get(target)
    if known is not None:
        return known
    with forkless:
        from saccade.backends.cpu.runtime.objects import keep_text, kept_text  # noqa: PLC0415 - see above

    text = driver_text(target)
    found = kept_text(text, target) if disk else None
    if found is None:
        found = make(target)
        if disk:
            keep_text(text, target, found)
    return _codes.setdefault(target, found)


_codes: dict[Target, bytes] = {}
"""Object code of drivers, once it was asked for: every program is linked with it."""
_current: list[Driver] = []
"""The process's driver, once there is one: teams outlive the programs whose code it came with."""


def provide(linked: Linked) -> None:
    """Take the driver from linked code, unless the process has one already."""
    if not _current:
        _current.append(Driver(linked))


def provide_code(code: Callable[[], bytes]) -> None:
    """The same from its object code, which is only asked for if there is none."""
    if not _current:
        with forkless:
            from saccade.backends.cpu.runtime.linker import link  # noqa: PLC0415 - see `compile_driver`

        provide(link([code()], _SYMBOLS))


def driver() -> Driver:
    """The driver, one for the whole process."""
    provide_code(lambda: driver_code(host_target(), compile_driver, disk=True))
    return _current[0]


@lru_cache(maxsize=1)
def nanoseconds_per_tick() -> float:
    """Period of the profile clock, measured over 20 ms."""
    clock = driver().clock
    began, first = time.perf_counter_ns(), clock()
    while time.perf_counter_ns() - began < 20_000_000:
        pass
    return float((time.perf_counter_ns() - began) / (clock() - first))
