"""The native driver: every thread of a team walks the whole table of phases.

Before a phase that reads or overwrites what others have written since the last barrier there is
one; a thread that finds nothing left to do goes on with the next phase up to there.

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
    phase  0 code*  1 arguments*  2 whether there is a barrier before it, but in the first of a job
    team   0 generation  8 job*  16 sleeping workers  24 stop  32 arrivals  40 epoch
           48 sleepers at the barrier  56 pauses, 57 pauses and yields at a barrier
           58 pauses, 59 pauses and yields between runs
    self   0 team*  1 thread  2 generation seen  3 thread id, once it runs
    entry  0 job*  1 function that gives the thread  2 function that gives the width (both int32)

Generation, arrivals and epoch only ever grow, so a slow thread never mistakes a new run for an old
one. A thread that spins too long sleeps on a futex (the low half of generation or epoch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.backends.cpu.target import Target

__all__ = ["driver_text"]

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
  %p3 = mul i64 %i, 3
  %phase = getelementptr i64, ptr %phases, i64 %p3
  %meetp = getelementptr i64, ptr %phase, i64 2
  %meet = load i64, ptr %meetp
  %meets = icmp ne i64 %meet, 0
  %waits = or i1 %meets, %timed ; a phase that is timed has the team for itself
  %later = icmp sgt i64 %i, 0
  %between = and i1 %waits, %later
  %joins = and i1 %between, %together
  br i1 %joins, label %join, label %enter
join:
  call void @barrier(ptr %team, i64 %width)
  br label %enter
enter:
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
  br i1 %timed, label %stop, label %tail
stop:
  %row1 = mul i64 %i, %rowlen
  %at1 = add i64 %row1, %column
  %at2 = add i64 %at1, 1
  %slot1 = getelementptr i64, ptr %clock, i64 %at2
  %t1 = call i64 @llvm.readcyclecounter()
  store i64 %t1, ptr %slot1
  br label %tail
tail:
  %next = add i64 %i, 1
  br label %head
end:
  %any = icmp sgt i64 %count, 0
  %parts = and i1 %any, %together
  br i1 %parts, label %last, label %out
last:
  call void @barrier(ptr %team, i64 %width)
  br label %out
out:
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
