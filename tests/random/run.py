#!/usr/bin/env python3
"""Runs random programs with random options of `comem run`, one after the other, and says which were wrong.

    tests/random/run.py --seed 7 --count 20     the runs 7 to 26
    tests/random/run.py --minutes 10            as many as there is time for, from a seed that is said
    tests/random/run.py --plain --count 20      the same programs on plain threads: is the program itself right?

A run follows from its seed: the program, the options, and what is done to the job meanwhile. What went wrong is told
with the command that repeats it, and its output is kept. See README.md.
"""

import argparse
import itertools
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT = 300  # seconds for one run: a hang is told from work beside other work
GRACE = 20  # for the launcher to end what takes longer
MOST_PHASES_OF_SPINNERS = 6  # of a job whose nodes share one core
DETECTORS = ["uffd-async", "uffd", "mprotect"]
FAULTS = [
    "drop=5%",
    "drop=10%",
    "dup=5%",
    "reorder=5%",
    "reorder=20%,dup=10%",
    "delay=200us",
    "drop=3%,dup=2%,reorder=3%,delay=50us",
    "corrupt=2%,truncate=2%",
    "rate=100mbit",
]


def switches():
    """The heuristics that may be off: the switches in the table of docs/tuning.md."""
    rows = [line.split("|") for line in (ROOT / "docs/tuning.md").read_text().splitlines() if line.startswith("| `")]
    return [row[1].strip(" `") for row in rows if row[3].strip() == "on or off"]


class Choice:
    """What one seed stands for."""

    def __init__(self, seed, most_phases):
        self.seed = seed
        self.random = random.Random(seed)
        self.engine = self.random.choice(["hlrc"] * 4 + ["scope"] * 2 + ["lrc"] * 2 + ["multicast"] * 2 + ["msi"])
        self.nodes = self.random.choice([2, 2, 2, 3, 3, 4])
        self.threads = self.random.choice([1, 1, 1, 1, 2, 3])
        self.mixed = self.once_in(3)
        self.detector = self.random.choice([None] + DETECTORS)
        self.backbone = self.random.choice(["shm", "shm", "udp"])
        self.faults = None
        faults = f"{self.random.choice(FAULTS)},seed={self.random.randrange(1000)}"
        if self.backbone == "udp" and self.once_in(2.5):
            self.faults = faults
        self.flags = self.rare_flags()
        self.phases = self.choose_phases(most_phases)
        self.core = self.random.randrange(64) if self.once_in(8) else None
        if self.core is not None and self.spins():
            # Whoever spins on the only core keeps the others waiting for a time slice.
            self.phases = min(self.phases, MOST_PHASES_OF_SPINNERS)
        self.stopped = (self.random.randrange(self.nodes), 0.1 + 0.6 * self.random.random())
        if not self.once_in(12):
            self.stopped = None

    def once_in(self, times):
        return self.random.random() < 1 / times

    def rare_flags(self):
        """Options that most runs leave as they are."""
        flags = []
        for share, name, values in [
            (0.35, "--cache", ["1M", "1M", "2M", "4M"]),
            (0.15, "--unit-pages", ["2", "4", "8", "16", "64"]),
            (0.25, "--prefetch", ["off"]),
            (0.2, "--write-detection", ["off"]),
            (0.2, "--migration", ["off"]),
            (0.2, "--lock-turns", ["off"]),
            (0.25, "--wait", ["spin", "block"]),
            (0.05, "--bind", ["cores"]),
            (0.1, "--slow", ["1=3x"]),
        ]:
            value, wanted = self.random.choice(values), self.random.random() < share
            if value == "spin" and self.nodes * self.threads > 3:
                value = "block"
            if wanted:
                flags += [name, value]
        # By itself, so that what else a seed stands for stays when switches come and go.
        numbers = random.Random(f"{self.seed} numbers")
        if numbers.random() < 0.3:
            some = numbers.sample(switches(), numbers.choice([1, 3, 12]))
            flags += ["--tuning", ",".join(f"{switch}=off" for switch in some)]
        return flags

    def spins(self):
        return ("--wait", "spin") in itertools.pairwise(self.flags)

    def choose_phases(self, most):
        phases = most // self.random.choice([1, 2, 6])
        if self.engine == "msi" or self.mixed:
            phases = min(phases, most // 2)
        if self.faults:
            phases //= 6
        return max(phases, 10)

    def program(self, path):
        arguments = [str(path), "--seed", str(self.seed), "--phases", str(self.phases)]
        return arguments + ["--mixed"] if self.mixed else arguments

    def command(self, comem, path, detectors):
        """The job; of the detectors only those that work here."""
        flags = ["-n", str(self.nodes), "-t", str(self.threads), "--engine", self.engine]
        if self.detector in detectors:
            flags += ["--detector", self.detector]
        flags += ["--backbone", self.backbone]
        if self.mixed:
            # One-sided locks refuse regions whose locks tell what was written.
            flags += ["--locks", "tokens"]
        if self.faults:
            flags += ["--faults", self.faults]
        command = [str(comem), "run", "--no-prefix", "--timeout", f"{LIMIT}s", *flags, *self.flags]
        return self.on_one_core() + command + ["--", *self.program(path)]

    def on_one_core(self):
        """Some jobs share one core, where the machine lets them."""
        if self.core is None or not shutil.which("taskset"):
            return []
        cores = sorted(os.sched_getaffinity(0))
        return ["taskset", "-c", str(cores[self.core % len(cores)])]

    def plain_command(self, path):
        """The program on plain threads, with as many as the job has."""
        settings = [f"COMEM_THREADS={self.nodes * self.threads}", f"COMEM_ENGINE={self.engine}"]
        return ["env", *settings, *self.program(path)]


def nodes_of(launcher, program):
    """The processes that `comem run` has started, by the program's name."""
    found = []
    for tasks in Path(f"/proc/{launcher}/task").glob("*/children"):
        try:
            for child in tasks.read_text().split():
                if Path(f"/proc/{child}/comm").read_text().strip() == program:
                    found.append(int(child))
        except OSError:
            continue
    return sorted(found)


def stop_for_a_while(process, stopped):
    """One node stands still for a moment, as on a host that is busy with something else."""
    which, after = stopped
    time.sleep(after)
    nodes = nodes_of(process.pid, "random")
    if which >= len(nodes):
        return
    try:
        os.kill(nodes[which], signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(nodes[which], signal.SIGCONT)
    except ProcessLookupError:
        pass


def run(command, output, stopped=None):
    """The command's status and what it printed; the file keeps that too."""
    with open(output, "w") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
        try:
            if stopped:
                stop_for_a_while(process, stopped)
            status = process.wait(timeout=LIMIT + GRACE)
        except subprocess.TimeoutExpired:
            status = "none: it did not end"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return status, Path(output).read_text(errors="replace")


def is_well(status, printed):
    lines = printed.splitlines()
    return status == 0 and "WRONG" not in printed and any(
        line.startswith("random seed=") and line.endswith(" ok") for line in lines
    )


class Runner:
    def __init__(self, options):
        self.options = options
        self.keep = options.keep
        self.keep.mkdir(parents=True, exist_ok=True)
        self.comem = options.bin / "comem"
        self.path = options.programs / ("random-threads" if options.plain else "random")
        self.prefix = []
        self.detectors = []
        self.done = self.failed = 0

    def prepare(self):
        """What this machine lacks is left out, and said."""
        for path in [self.path] if self.options.plain else [self.path, self.comem]:
            if not os.access(path, os.X_OK):
                sys.exit(f"FAILED: there is no {path}; make -C tests/random builds random, cargo build comem")
        if self.options.plain:
            self.watch_races()
        else:
            self.try_detectors()

    def watch_races(self):
        """Takes the program that the thread sanitizer watches, where it runs."""
        races = self.options.programs / "random-races"
        prefix = ["setarch", "-R"] if shutil.which("setarch") else []
        probe = [*prefix, str(races), "--phases", "1"]
        if races.exists() and is_well(*run(probe, self.keep / "probe")):
            self.path, self.prefix = races, prefix
        else:
            print("SKIP: data races of the random programs: the compiler's thread sanitizer does not work here")

    def try_detectors(self):
        for detector in DETECTORS:
            command = [str(self.comem), "run", "-n", "2", "--no-prefix", "--detector", detector]
            if is_well(*run([*command, "--", str(self.path), "--phases", "1"], self.keep / "probe")):
                self.detectors.append(detector)
            else:
                print(f"SKIP: random programs with the detector {detector}: comem doctor says why")

    def one(self, seed):
        choice = Choice(seed, self.options.phases)
        if self.options.plain:
            command, stopped = self.prefix + choice.plain_command(self.path), None
        else:
            command, stopped = choice.command(self.comem, self.path, self.detectors), choice.stopped
        output = self.keep / str(seed)
        if self.options.show:
            print(shlex.join(command), flush=True)
        status, printed = run(command, output, stopped)
        self.done += 1
        if is_well(status, printed):
            output.unlink()
        else:
            self.tell(seed, status, printed, command, stopped, output)

    def tell(self, seed, status, printed, command, stopped, output):
        self.failed += 1
        print("\n".join(printed.splitlines()[:6]))
        print(f"FAILED: random program {seed}: status {status}: {shlex.join(command)}")
        if stopped:
            print(f"  its node {stopped[0]} was stopped for 0.3 s after {stopped[1]:.2f} s")
        plain = " --plain" if self.options.plain else ""
        print(f"  to repeat it: tests/random/run.py{plain} --seed {seed} --phases {self.options.phases}")
        print(f"  its output: {output}", flush=True)

    def all(self):
        seed, until = self.options.seed, time.monotonic() + 60 * (self.options.minutes or 0)
        while time.monotonic() < until if self.options.minutes else self.done < self.options.count:
            self.one(seed)
            seed += 1
        where = "on plain threads" if self.options.plain else "with Comem"
        if self.failed == 0:
            print(f"ok: random programs {where}: {self.done}, from seed {self.options.seed}")
        else:
            print(f"{self.failed} of {self.done} random programs {where} failed, from seed {self.options.seed}")
        return 1 if self.failed else 0


def read_options():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="the first run's; by default another one each time")
    parser.add_argument("--count", type=int, default=1, help="how many runs")
    parser.add_argument("--minutes", type=float, help="as many runs as there is time for")
    parser.add_argument("--phases", type=int, default=600, help="of the longest programs; a seed's run depends on it")
    parser.add_argument("--plain", action="store_true", help="on plain threads, watched for data races where possible")
    parser.add_argument("--show", action="store_true", help="print each command")
    parser.add_argument("--bin", type=Path, default=os.environ.get("COMEM_BIN", target / "release"))
    parser.add_argument("--programs", type=Path, default=os.environ.get("COMEM_WORKLOADS", ROOT / "out/workloads"))
    parser.add_argument("--keep", type=Path, default=ROOT / "out/random", help="where to keep what failed runs printed")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 40)
    print(f"random programs from seed {options.seed}", flush=True)
    options.bin, options.programs = Path(options.bin).resolve(), Path(options.programs).resolve()
    return options


def main():
    runner = Runner(read_options())
    runner.prepare()
    return runner.all()


if __name__ == "__main__":
    sys.exit(main())
