"""Trials: a fault hits a job, the job is restarted until it ends, and its results are judged."""

import collections
import contextlib
import dataclasses
import pathlib
import shutil
import signal
import time
from collections.abc import Iterable, Sequence

from experiments.torture import comparison, disks, faults, jobs
from experiments.torture.faults import Fault
from experiments.torture.jobs import Job, Running
from vade_jax import tables

EQUAL, NAMED, FAILED = "equal", "named", "failed"
# What a job prints if processes that a killed job had started still run.
BUSY = ("has not ended", "another process makes this run now")
POLL_S = 0.02


class TrialFailed(Exception):  # noqa: N818 (says what happened)
    """A job did something that it must not do."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a trial ended."""

    fault: Fault
    result: str  # EQUAL, NAMED or FAILED
    why: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.fault}: {self.result} ({self.seconds:.0f} s){self.why and ': ' + self.why}"


@dataclasses.dataclass(frozen=True)
class Reference:
    """The run of a job without a fault."""

    directory: pathlib.Path
    times: dict[str, float]  # seconds from the start to each moment, and to the end

    def limit(self) -> float:
        """Returns the seconds after which a job counts as hanging."""
        return 120 + 6 * self.times[faults.END]

    def until(self, fault: Fault) -> tuple[str, float]:
        """Returns the moment of a fault, and the seconds to wait after that moment."""
        names = list(self.times)
        following = self.times[names[names.index(fault.moment) + 1]]
        return fault.moment, fault.share * max(0.0, following - self.times[fault.moment])


def reference(job: Job, workdir: pathlib.Path) -> Reference:
    """Runs the job without a fault, in WORKDIR/reference.

    Raises:
        RuntimeError: the job fails, or does not reach one of its moments.
    """
    directory, log = workdir / "reference", workdir / "reference.log"
    is_first = not directory.exists()
    for _ in range(1 + is_first):  # the first start compiles, so a second one measures the times
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        times, start = {}, time.monotonic()
        running = job.start(directory, log)
        is_over = False
        while not is_over:
            is_over = running.is_over()  # asked first: a moment just before the end counts, too
            for name, is_reached in job.moments.items():
                if name not in times and is_reached(directory):
                    times[name] = time.monotonic() - start
            time.sleep(POLL_S)
        if any(running.wait(0)):
            why = jobs.error_line(running.said()).removeprefix("error: ")
            raise RuntimeError(
                f"the job without a fault failed: {why + ': see ' if why else ''}{log}"
            )
        times[faults.END] = time.monotonic() - start
    missing = [name for name in job.moments if name not in times]
    if missing:
        raise RuntimeError(f"the job never comes to {', '.join(missing)}: let it save thrice")
    return Reference(directory, times)


def trial(job: Job, fault: Fault, known: Reference, root: pathlib.Path) -> Outcome:
    """Makes one trial in `root`; deletes `root` afterwards unless the trial fails."""
    start, log = time.monotonic(), root.with_suffix(".log")
    log.unlink(missing_ok=True)
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    own_disk = disks.own(root) if fault.kind in faults.DISK else contextlib.nullcontext()
    try:
        with own_disk as disk:
            result, why = _hurt(job, fault, known, root / "run", log, disk)
    except (TrialFailed, TimeoutError) as error:
        result, why = FAILED, str(error)
    if result != FAILED:
        shutil.rmtree(root)
        log.unlink(missing_ok=True)
    return Outcome(fault, result, why, time.monotonic() - start)


def _hurt(job, fault, known, workdir, log, disk) -> tuple[str, str]:
    """Causes the fault in a job, and judges what the job does then and after restarts."""
    if fault.moment == faults.END:  # the reference is what the job would leave
        shutil.copytree(known.directory, workdir)
        return _start_again(job, known, workdir, log, faults.damage(workdir, fault))
    workdir.mkdir()
    clock = ()
    if fault.kind == faults.CLOCK:
        after = fault.share * known.times[faults.END]
        clock = (str(after), str(fault.rng().choice(faults.JUMPS)))
    running = job.start(workdir, log, clock)
    damaged = None
    try:
        if fault.kind != faults.CLOCK:
            _await(job, running, fault, known, workdir)
            damaged = _strike(job, running, fault, known, workdir, log, disk)
        codes = running.wait(known.limit())
    finally:
        running.kill()
    if disk is not None:
        disk.mend()
    # After a signal a job may end in any way; it must survive any other fault, or end with one line of error.
    is_signal = fault.kind in (*faults.SIGNALS, *faults.DAMAGE)
    if any(codes) and not is_signal and not jobs.error_line(running.said()):
        return FAILED, f"exit codes {codes} without one line of error"
    if any(codes) and fault.kind == faults.CLOCK:
        return FAILED, f"exit codes {codes}: {jobs.error_line(running.said())}"
    return _start_again(job, known, workdir, log, damaged)


def _await(job, running: Running, fault: Fault, known: Reference, workdir) -> None:
    """Waits for the moment of the fault, or for the end of the job if that comes first."""
    moment, delay = known.until(fault)
    deadline = time.monotonic() + known.limit()
    while not running.is_over() and not job.moments[moment](workdir):
        if time.monotonic() > deadline:
            raise TimeoutError(f"did not come to {moment!r} within {known.limit():.0f} s")
        time.sleep(POLL_S)
    until = time.monotonic() + delay
    while not running.is_over() and time.monotonic() < until:
        time.sleep(POLL_S)


def _strike(job, running: Running, fault, known, workdir, log, disk) -> pathlib.Path | None:
    """Causes the fault; returns the file that was damaged, if any."""
    rng = fault.rng()
    member = int(rng.integers(len(running.members)))
    if fault.kind in (faults.KILL, *faults.DAMAGE):
        # Half of the time the processes that it has started are killed with it.
        if job.processes > 1 or rng.random() < 0.5:
            running.send(signal.SIGKILL, member)
        else:
            running.kill()
        if fault.kind in faults.DAMAGE:
            running.wait(known.limit())
            return faults.damage(workdir, fault)
    elif fault.kind == faults.TERMINATE:
        running.send(signal.SIGTERM, member)
    elif fault.kind == faults.INTERRUPT:
        running.send(signal.SIGINT, member)
        time.sleep(float(rng.random()))
        running.send(signal.SIGINT, member)
    elif fault.kind == faults.FULL:
        disk.fill(running.members[0].pid, int(rng.integers(200_000)))
    elif fault.kind == faults.READ_ONLY:
        disk.make_read_only()
    elif fault.kind == faults.SECOND:
        _start_second(job, running, known, workdir, log.with_suffix(".second.log"))
    return None


def _start_second(job, running: Running, known, workdir, log) -> None:
    """Starts a second run in the same directory: one of the two must be refused while the other works."""
    second = job.start(workdir, log)
    codes = second.wait(known.limit())
    # The second run may find nothing left to do. Or it came first, and then the other run was refused.
    has_worked = not any(codes) and jobs.DONE not in second.said()
    if has_worked and not jobs.error_line(running.said()):
        raise TrialFailed("a second run was let in")
    if any(codes) and not jobs.error_line(second.said()):
        raise TrialFailed(f"the second run: exit codes {codes} without one line of error")
    log.unlink()


def _start_again(job, known, workdir, log, damaged) -> tuple[str, str]:
    """Restarts the job until it ends well or names the damage, and judges its results."""
    deadline = time.monotonic() + known.limit()
    while not job.is_done(workdir):
        running = job.start(workdir, log)
        codes = running.wait(known.limit())
        if not any(codes):
            break
        line = jobs.error_line(running.said())
        if not line:
            return FAILED, f"started again: exit codes {codes} without one line of error"
        if damaged is not None:
            return _judged(line, workdir, damaged)
        if not any(said in line for said in BUSY) or time.monotonic() > deadline:
            return FAILED, f"started again: {line}"
        time.sleep(1)
    try:
        found = list(comparison.differences(known.directory, workdir, damaged))
    except comparison.Refused as error:
        if damaged is None:
            return FAILED, str(error)
        return _judged(str(error), workdir, damaged)
    return (FAILED, "; ".join(found[:4])) if found else (EQUAL, "")


def _judged(line: str, workdir: pathlib.Path, damaged: pathlib.Path) -> tuple[str, str]:
    """Returns NAMED if a line of error names the damaged file or a directory above it, else FAILED."""
    inside = damaged.relative_to(workdir)
    names = [str(workdir / part) for part in (inside, *list(inside.parents)[:-1])]
    said = line.replace(str(workdir.absolute()), ".")[:300]
    if any(name in line for name in names):
        return NAMED, f"{inside}: {said}"
    return FAILED, f"{inside} was damaged, but it said {said}"


# ------------------------------------------------------------------------------ the table
def table(records: Iterable[dict]) -> str:
    """Returns the outcomes by job and fault as markdown; `records` are those of trials.jsonl."""
    counts = collections.defaultdict(collections.Counter)
    for record in records:
        counts[record["job"], record["kind"]][record["result"]] += 1
    rows = [
        (job, kind, *map(str, (of.total(), of[EQUAL], of[NAMED], of[FAILED])))
        for (job, kind), of in sorted(counts.items())
    ]
    return tables.markdown(["job", "fault", "trials", "bit-equal", "damage named", "failed"], rows)


def record(name: str, outcome: Outcome) -> dict:
    """Returns a line of trials.jsonl."""
    fault = dataclasses.asdict(outcome.fault)
    return {"job": name, **fault, "result": outcome.result, "why": outcome.why}


def kinds(job: Job, wanted: str) -> Sequence[str]:
    """Returns the kinds of faults in a comma-separated list; all kinds of the job if it is empty.

    Raises:
        ValueError: the job has no such kind of fault.
    """
    known, words = job.kinds(), [word.strip() for word in wanted.split(",") if word.strip()]
    if unknown := [word for word in words if word not in known]:
        raise ValueError(f"--faults={unknown[0]!r}: this job has {', '.join(known)}")
    return words or known
