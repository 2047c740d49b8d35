#!/usr/bin/env python3
"""What it costs a run to be watched by the page of `comem ui`, four times a second.

    bench/watching.py [--pairs N] [--comem FILE] [--nodes N] -- PROGRAM ARGUMENT...

Runs of one program are watched and not watched, in turn. Told are the time that each took, and the time of cores that
its launcher and its nodes took. With a program that sleeps (bench/sleeps.c) the latter is what watching costs, whatever
else the machine does.
"""

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time
from typing import NamedTuple


class Run(NamedTuple):
    """What one run took, all nodes together."""

    wall_s: float
    cpu_s: float
    samples: int


class Server:
    """A `comem ui`, asked as its page asks it."""

    def __init__(self, process: subprocess.Popen) -> None:
        found = re.search(r"http://(\S+)/#token=(\w+)", process.stdout.readline())
        self.process, self.address = process.pid, found.group(1)
        self.headers = {"Origin": f"http://{self.address}", "Content-Type": "application/json"}
        answer = self.begin("POST", "/api/session", {"token": found.group(2)})
        cookie = answer.getheader("Set-Cookie").split(";")[0]
        self.headers |= {"Cookie": cookie, "X-Comem-Key": json.load(answer)["key"]}

    def begin(self, method: str, path: str, body: object = None) -> http.client.HTTPResponse:
        """Asks; the answer is yet to be read."""
        connection = http.client.HTTPConnection(self.address)
        connection.request(method, path, json.dumps(body), self.headers)
        return connection.getresponse()

    def watch(self, job: int) -> None:
        """Reads what the job's page reads, from when there is the job until its end."""
        path = f"/api/jobs/{job}"
        while self.begin("GET", path).status == 404:
            time.sleep(0.01)
        threading.Thread(target=self.begin("GET", f"{path}/live").read, daemon=True).start()

    def cpu_s(self) -> float:
        """The time of cores that the server has taken."""
        with open(f"/proc/{self.process}/stat", encoding="utf-8") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def run(command: list[str], server: Server | None) -> Run:
    """One run, watched if there is a server to do so."""
    with tempfile.TemporaryDirectory() as directory:
        stats = f"{directory}/stats.json"
        begun = time.monotonic()
        launcher = subprocess.Popen([*command[:2], "--stats", stats, *command[2:]], stdout=subprocess.DEVNULL)
        if server:
            server.watch(launcher.pid)
        # The launcher has waited for its nodes, so they are in its account.
        _, status, used = os.wait4(launcher.pid, 0)
        took = time.monotonic() - begun
        launcher.returncode = os.waitstatus_to_exitcode(status)
        if launcher.returncode != 0:
            raise SystemExit(f"the run ended with status {launcher.returncode}")
        with open(stats, encoding="utf-8") as file:
            samples = json.load(file)["totals"]["samples"]
    if (samples > 0) != (server is not None):
        raise SystemExit(f"watched: {server is not None}, and yet the nodes gave {samples} samples")
    return Run(took, used.ru_utime + used.ru_stime, samples)


def measure(server: Server, command: list[str], pairs: int) -> None:
    """In turn, and in each pair the other one first."""
    run(command, None)
    longer, busier, own = [], [], 0.0
    print("| not watched | watched | cost | cores, not watched | cores, watched | samples |\n|---|---|---|---|---|---|")
    for pair in range(pairs):
        took = {}
        for watched in (False, True) if pair % 2 else (True, False):
            before = server.cpu_s()
            took[watched] = run(command, server if watched else None)
            own += server.cpu_s() - before
        plain, seen = took[False], took[True]
        longer.append(100 * (seen.wall_s / plain.wall_s - 1))
        busier.append(100 * (seen.cpu_s - plain.cpu_s) / seen.wall_s)
        print(
            f"| {plain.wall_s:.3f} s | {seen.wall_s:.3f} s | {longer[-1]:+.2f} % | {1000 * plain.cpu_s:.1f} ms"
            f" | {1000 * seen.cpu_s:.1f} ms | {seen.samples} |",
            flush=True,
        )
    for what, costs in (("time of a run", longer), ("one core's time, taken by launcher and nodes", busier)):
        low, middle, high = statistics.quantiles(costs, n=4)
        print(f"{what}: {middle:+.2f} % (median of {pairs} pairs; quartiles {low:+.2f} and {high:+.2f} %)")
    print(f"the server took {1000 * own / pairs:.1f} ms of a core for each pair")


def main() -> None:
    """All runs, and what they say together."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--comem", default="target/release/comem")
    parser.add_argument("program", nargs="+")
    args = parser.parse_args()
    command = [args.comem, "run", "-n", str(args.nodes), "-t", "1", *args.program]
    with subprocess.Popen([args.comem, "ui"], stdout=subprocess.PIPE, text=True) as process:
        try:
            measure(Server(process), command, args.pairs)
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
