#!/usr/bin/env python3
"""`comem ui` in a real browser: probes hosts, starts a job, watches it, sees false sharing, ends it.

Called by tests/ui.sh with the command, a program that shares falsely for ever, and where pictures go.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator

from chromium import Chromium, path

COMEM, PROGRAM, PICTURES = sys.argv[1:4]
JOB_NAME = "<b>shares</b>"
ARGUMENT = 'two "words",\na second line & <i>more</i>'
failed = 0


def check(good: object, what: str) -> None:
    """One line for each thing that was looked at."""
    global failed
    print(f"{'ok' if good else 'FAILED'}: comem ui in Chromium: {what}", flush=True)
    failed += not good


def in_view(page: Chromium, *words: str) -> bool:
    """Whether a reader sees all these words."""
    text = page.text()
    return all(word in text for word in words)


def locked_out(page: Chromium, address: str) -> None:
    """Without the right token there is nothing to see."""
    page.go(address.split("#")[0] + "#token=" + "0" * 32)
    page.wait("document.body.innerText.includes('This page is locked')", "the page is locked")
    page.picture(f"{PICTURES}/locked.png")
    known = page.run("fetch('/api/jobs').then((answer) => answer.status)")
    check(known in (401, 403), "a wrong token opens nothing, and the interface answers with a refusal")


def fits(page: Chromium) -> bool:
    """Whether no table is cut off at its right, where only who scrolls would see it."""
    return page.run("[...document.querySelectorAll('.scroll')].every((one) => one.scrollWidth <= one.clientWidth)")


@contextlib.contextmanager
def daemon() -> Iterator[str]:
    """A daemon of this host alone; its port."""
    command = [COMEM, "daemon", "--port", "0", "--bind", "127.0.0.1", "--slots", "3", "--allow", os.path.dirname(COMEM)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield re.search(r"listening on 127\.0\.0\.1:(\d+)", process.stdout.readline()).group(1)
        finally:
            process.terminate()


def hosts(page: Chromium) -> None:
    """This host, and what daemons say."""
    page.click('a[href="#/hosts"]')
    page.wait("document.querySelector('[aria-label=\"This host\"] tbody td')", "this host is shown")
    page.wait("!document.querySelector('#probe').disabled", "daemons were asked")
    cores = page.run("document.querySelector('[aria-label=\"This host\"] tbody').rows[0].cells[1].innerText")
    page.set("[name=hosts]", "127.0.0.1")
    page.click("#probe")
    table = "document.querySelector('[aria-label=\"Hosts with daemons\"] tbody')"
    told = f"[...{table}.rows[0].cells].map((cell) => cell.innerText)"
    page.wait(f"{told}[0].startsWith('127.0.0.1')", "the daemon that was asked is shown")
    page.picture(f"{PICTURES}/hosts.png")
    row = page.run(told)
    found = (row[1], row[5:])
    check(found == (cores, ["0", "3", "3", "willing"]), f"a daemon is probed: cores, nodes, slots, answer {found}")
    check(fits(page), "tables of hosts fit")


def start(page: Chromium) -> float:
    """The form, filled in and sent; when that was."""
    page.click('a[href="#/start"]')
    page.wait("document.querySelector('[name=program]')", "there is a form")
    page.set("[name=program]", PROGRAM + "-that-is-not-there")
    page.set("[name=name]", JOB_NAME)
    page.set("[name=nodes]", "2")
    page.set("[name=engine]", "hlrc")
    page.click("fieldset button")
    page.set("fieldset textarea", ARGUMENT)
    page.click("#start")
    page.wait("document.querySelector('form .message.bad')", "the mistake is answered")
    page.picture(f"{PICTURES}/mistake.png")
    check(in_view(page, "that-is-not-there"), "a mistake in the form is answered with a sentence, and the form stays")
    page.set("[name=program]", PROGRAM)
    pressed = time.monotonic()
    page.click("#start")
    page.wait("location.hash.match(/^#\\/jobs\\/\\d+$/)", "the job's page opens")
    return pressed


def watch(page: Chromium, pressed: float) -> None:
    """Figures that move, the job's output, and who shares falsely."""
    opened = time.monotonic()
    page.wait("document.querySelector('.tiles dd')", "a first sample")
    seen = time.monotonic()
    print(
        f"the first sample was seen {1000 * (seen - opened):.0f} ms after the job's page,"
        f" {1000 * (seen - pressed):.0f} ms after Start was pressed",
        flush=True,
    )
    page.wait("document.querySelectorAll('[aria-label=Nodes] tbody tr').length === 2", "both nodes are shown")
    running = "document.querySelector('.tiles dd').innerText"
    first = page.run(running)
    page.wait(f"{running} !== {json.dumps(first)}", "the figures move")
    page.wait("document.querySelectorAll('.columns svg').length >= 2", "curves are drawn")
    check(True, "a job of the form is watched live, with curves")
    page.wait("document.querySelector('pre').innerText.includes('begins with')", "the output is shown")
    printed = str(page.run("document.querySelector('pre').textContent"))
    # Each line may have its node before it.
    check(all(line in printed for line in ARGUMENT.split("\n")), "arguments arrive as they were typed")
    check(in_view(page, JOB_NAME, "<script>alert(2)</script>"), "HTML in a name and in the output is shown as text")
    page.click("[data-region]")
    page.wait("document.querySelector('[aria-label=\"Falsely shared pages\"] tbody tr')", "false sharing is named")
    nodes = page.run("document.querySelector('[aria-label=\"Falsely shared pages\"] tbody').rows[0].cells[2].innerText")
    check(nodes == "0, 1" and in_view(page, "<img src=x onerror=alert(1)>"), "the falsely shared page is named")
    page.press("Ask now")
    page.wait("document.body.innerText.includes('Node 1 on')", "both nodes say what their threads wait for")
    page.wait(f"{running}.endsWith(' s') && parseFloat({running}) >= 3", "the job runs for three seconds")
    page.picture(f"{PICTURES}/job.png")
    check(fits(page), "tables of a running job fit")
    wide = page.run("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    check(not wide, "nothing is wider than the window")
    page.page("Emulation.setDeviceMetricsOverride", width=420, height=900, deviceScaleFactor=1, mobile=False)
    page.wait("window.innerWidth === 420", "the window is narrow")
    page.picture(f"{PICTURES}/job-narrow.png")
    wide = page.run("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    check(not wide, "nor than a narrow one")
    page.page("Emulation.clearDeviceMetricsOverride")


def end(page: Chromium) -> None:
    """The job ends for all, and leaves its statistics."""
    page.click("#end-job")
    page.click("#end-job-yes")
    page.wait("document.querySelector('#killed')", "the server says that it has ended the job")
    page.wait("document.querySelector('.badge').innerText.startsWith('ended')", "the job has ended")
    page.picture(f"{PICTURES}/ended.png")
    rows = "[...document.querySelector('[aria-label=Nodes] tbody').rows]"
    states = page.run(f"{rows}.map((row) => row.cells[2].innerText)")
    idle = page.run("[...document.querySelectorAll('main button')].every((one) => one.disabled)")
    check(states == ["ended", "ended"] and idle, f"nothing more is asked of nodes that have ended {states}")
    left = subprocess.run([COMEM, "jobs", "--json"], capture_output=True, text=True, check=False)
    check(JOB_NAME not in left.stdout, "the job is ended, for comem jobs too")
    page.click('a[href="#/jobs"]')
    page.wait("document.querySelector('[aria-label=\"Ended jobs\"] tbody tr')", "it is among those that have ended")
    count = page.run("document.querySelector('[aria-label=\"Ended jobs\"] tbody').rows.length")
    check(count == 1 and fits(page), "it alone has ended, and the table of jobs fits")
    page.picture(f"{PICTURES}/jobs.png")
    page.click('a[href="#/runs"]')
    page.wait("document.querySelector('[aria-label=\"Past runs\"] tbody a')", "it is a past run")
    page.picture(f"{PICTURES}/runs.png")
    count = page.run("document.querySelector('[aria-label=\"Past runs\"] tbody').rows.length")
    check(count == 1 and fits(page), "it alone is a past run, and the table of runs fits")
    page.click('[aria-label="Past runs"] tbody a')
    page.wait("document.querySelector('[aria-label=\"Falsely shared pages\"] tbody tr')", "its statistics are shown")
    page.picture(f"{PICTURES}/run.png")
    check(fits(page), "tables of its statistics fit")
    check(in_view(page, "All counters"), "its statistics are among past runs, with the falsely shared page")


def main() -> int:
    """All of it, with one server and one browser."""
    with daemon() as port, subprocess.Popen(
        [COMEM, "ui"], stdout=subprocess.PIPE, text=True, env={**os.environ, "COMEM_DAEMON_PORT": port}
    ) as server:
        address = re.search(r"http://\S+", server.stdout.readline()).group()
        try:
            with Chromium(path()) as page:
                locked_out(page, address)
                page.errors.clear()
                page.go("about:blank")
                page.go(address)
                page.wait("document.querySelector('nav a')", "the page opens")
                check("token" not in str(page.run("location.href")), "the address that is shown holds no token")
                hosts(page)
                pressed = start(page)
                # The refusal of the form is an error of the network to the browser.
                page.errors = [error for error in page.errors if "/api/jobs" not in error]
                watch(page, pressed)
                end(page)
                check(not page.dialogs, f"no script of a name, label or output has run {page.dialogs or ''}")
                check(not page.errors, f"the page's scripts have raised nothing {page.errors or ''}")
        finally:
            server.terminate()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
