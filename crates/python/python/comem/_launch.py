"""Starting worker nodes from within an interpreter, which becomes node zero itself.

The calling process plays two parts: it is a node, and it is what `comem run` is otherwise: the launcher, at the other
end of that node's control line (``crates/runtime/src/control.rs`` describes it). Workers are told over channels of
their own where node zero is, as `comem exec` would tell them. One thread hears everything: the control line, what
workers answer, what they print, and their end.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import selectors
import shlex
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import _chance, _command, _core, _interpreter, _job, _wire
from ._errors import ArgumentError, Error, ForkError, MisuseError, NodeLost, StartError, Stopped
from ._sync import whole
from ._wire import Channel, Garbled

#: What starts programs on other hosts; COMEM_RSH names another.
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10 -o ServerAliveCountMax=3"
#: How long a worker may take to say farewell.
GOODBYE_S = 2.0
#: Lines of what a worker printed that are shown when it does not start.
LAST_LINES = 12

#: What must be the same on all nodes: this protocol. Each has the package at a place of its own.
PROGRAM = os.path.abspath(_wire.__file__)

HERE = ("", "localhost", "127.0.0.1")

#: What helps where the system refuses a process, a thread or a descriptor.
LIMITS = "see what this process may have: ulimit -u (processes and threads), ulimit -n (open files)"


def places(nodes: Optional[int], hosts: Optional[Sequence[str]]) -> List[str]:
    """The host of each worker; "" is this one.

    Raises
    ------
    ArgumentError
        When the numbers make no sense.
    """
    try:
        there = nodes is None or 1 <= whole(nodes) <= 1024
    except TypeError:
        there = False
    if not there:
        raise ArgumentError(
            f"a cluster of {nodes!r} nodes cannot be; give a number from 1 to 1024, this process included"
        )
    if hosts is None:
        return [""] * ((_core.cores() if nodes is None else nodes) - 1)
    if isinstance(hosts, str) or not all(isinstance(host, str) for host in hosts):
        raise ArgumentError(f"{hosts!r} is no list of hosts; use one, as in [\"a:2\", \"b\"]")
    out: List[str] = []
    for host in hosts:
        name, _, count = host.partition(":")
        if not name or name.startswith("-") or not (count or "1").isdigit() or int(count or 1) < 1:
            raise ArgumentError(f"{host!r} names no host; use \"name\" or \"name:2\" for two nodes there")
        out += ["" if name in HERE else name] * int(count or 1)
    if nodes is not None and nodes != len(out) + 1:
        raise ArgumentError(
            f"{nodes} nodes are not this process and {len(out)} workers on {list(hosts)}; leave nodes out"
        )
    return out


class Worker:
    """A worker as its caller sees it."""

    def __init__(
        self, node: int, host: str, process: subprocess.Popen[bytes], channel: Channel, program: str = ""
    ) -> None:
        #: The interpreter that it runs, on this host.
        self.program = program
        self.node = node
        self.host = host
        self.process = process
        self.channel = channel
        self.pid = process.pid
        self.last: List[str] = []
        #: What it printed of a line that has not ended.
        self.partial = {"out": b"", "err": b""}
        self.joined = False
        self.gone = False
        #: This process has ended it, because of another.
        self.killed = False
        #: What is wrong with what it said.
        self.garbled = ""

    def __str__(self) -> str:
        where = f"host {self.host}, " if self.host else ""
        return f"node {self.node} ({where}pid {self.pid})"

    def how_it_ended(self) -> str:
        """How it ended, as a clause."""
        if self.garbled:
            return self.garbled
        try:
            status = self.process.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "does not answer any more"
        if status < 0:
            return f"was killed by signal {-status}"
        return f"ended with status {status}"

    def kill(self) -> None:
        """Ends it."""
        self.killed = True
        self.process.kill()


def _spawn(node: int, host: str) -> Worker:
    quiet: Dict[str, Any] = {"stderr": subprocess.PIPE, "start_new_session": True}
    if host:
        shell = shlex.split(os.environ.get("COMEM_RSH", "").strip() or SSH)
        remote = _interpreter.remote_command("--pipe")
        try:
            process = subprocess.Popen(
                [*shell, host, remote], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, **quiet
            )
        except OSError as error:
            raise StartError(f"host {host}: cannot run {shell[0]}: {error}; install ssh, or set COMEM_RSH") from error
        assert process.stdin is not None and process.stdout is not None
        return Worker(node, host, process, Channel(os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        fd = theirs.fileno()
        command = _interpreter.command("--channel", str(fd))
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                bufsize=0,
                pass_fds=[fd],
                env=_environment(),
                **quiet,
            )
        except OSError as error:
            raise StartError(f"node {node}: cannot run {command[0]}: {error}; {LIMITS}") from error
        fd = ours.detach()
    return Worker(node, host, process, Channel(fd, fd), command[0])


def _environment() -> Dict[str, str]:
    """What a worker on this host inherits."""
    environment = dict(os.environ)
    if _chance.SEED is not None:
        environment[_chance.VARIABLE] = _chance.SEED
    wrap = _command.wrapper()
    # As with `comem run`: system calls of workers may use shared memory.
    if os.path.isfile(wrap) and environment.get("COMEM_WRAP") != "off" and not set(wrap) & set(" :"):
        others = [library for library in environment.get("LD_PRELOAD", "").split(":") if library not in ("", wrap)]
        environment["LD_PRELOAD"] = ":".join([*others, wrap])
    environment.setdefault("OMP_NUM_THREADS", "1")
    return environment


class Team:
    """This process and its workers: one job, from its start to the end of the interpreter.

    Parameters
    ----------
    hosts : sequence of str
        Of each worker; "" is this one.
    options : dict
        The job's options: environment variables.
    """

    def __init__(self, hosts: Sequence[str], options: Dict[str, str]) -> None:
        self.hosts = list(hosts)
        self.options = options
        self.size = len(hosts) + 1
        self.pid = os.getpid()
        self.lost: Optional[Error] = None
        #: The worker whose end that was.
        self.first_gone: Optional[Worker] = None
        #: The caller has had that as an exception.
        self.told = False
        #: The workers were told to begin something, and are not at its end yet.
        self.halfway = False
        self.workers: List[Worker] = []
        self._listener: Optional[threading.Thread] = None
        self._tasks: Dict[int, Callable[[int, bool, bytes], None]] = {}
        self._next_task = 0
        self._lock = threading.Lock()
        self._showing = threading.Lock()
        self._ending = False
        self._early: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._zero: Optional[str] = None
        try:
            self._selector = selectors.DefaultSelector()
            self._line, node_end = socket.socketpair()
        except OSError as error:
            raise StartError(f"a cluster cannot be started: {error}; {LIMITS}") from error
        if self.size > 1:
            self._start(node_end)

    # Start

    def _start(self, node_end: socket.socket) -> None:
        job = self._new_job()
        try:
            for index, host in enumerate(self.hosts):
                self.workers.append(_spawn(index + 1, host))
            # Before anything that the thread which listens may have to say.
            self._line.sendall(job.encode() + b"\n")
            self._watch()
            self._send_orders(job)
            self._become_zero(node_end)
            for _ in self.workers:
                self._one_joined()
        except BaseException as error:
            self.abandon()
            self.dissolve()
            if isinstance(error, OSError) and not isinstance(error, Error):
                raise StartError(f"a cluster cannot be started: {error}; {LIMITS}") from error
            raise

    def _new_job(self) -> str:
        number = secrets.randbits(62) | 1
        hosts = [socket.gethostname(), *(host or socket.gethostname() for host in self.hosts)]
        about = {
            "key": secrets.token_hex(32),
            "job": number,
            "prog_id": number % 60000 + 1,
            "auth": True,
            "hosts": hosts,
        }
        return json.dumps({"type": "job", **about})

    def _node_environment(self, node: int) -> Dict[str, str]:
        host = ([""] + self.hosts)[node]
        here = sum(other == host for other in ["", *self.hosts])
        about = {"NODES": self.size, "NODE": node, "HOST_NODES": here}
        return {**{"COMEM_" + name: str(value) for name, value in about.items()}, **self.options}

    def _send_orders(self, job: str) -> None:
        for worker in self.workers:
            environment = self._node_environment(worker.node)
            orders = {
                "environment": environment,
                "job": job,
                "path": list(sys.path),
                "directory": os.getcwd(),
                "same_host": not worker.host,
            }
            self._tell(worker, "join", orders)

    def _become_zero(self, node_end: socket.socket) -> None:
        """Joins the job, with the orders in the environment for as long as that takes."""
        ours = {**self._node_environment(0), "COMEM_CONTROL_FD": str(node_end.detach())}
        ours["COMEM_PROGRAM"] = PROGRAM
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            _core.start()
            _job.place()
        except Exception as error:
            # Others were ended because of the first.
            first = self.first_gone
            if first is None:
                raise
            said = "".join(f"\n    {line}" for line in first.last)
            runs = first.program and f" ({_interpreter.VARIABLE} names another interpreter than {first.program})"
            how = f"{first} {first.how_it_ended()}; it had not joined yet{runs}"
            raise StartError(how + (said and f", and said:{said}")) from error
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def _one_joined(self) -> None:
        worker, version = self._early.get()
        if isinstance(version, BaseException):
            raise version
        if version != sys.version_info[:2]:
            here, there = (".".join(map(str, v)) for v in (sys.version_info[:2], version))
            raise StartError(
                f"{worker} runs Python {there}, this process {here}; use one version, see COMEM_REMOTE_PYTHON"
            )

    # Hearing

    def _watch(self) -> None:
        self._selector.register(self._line, selectors.EVENT_READ, self._hear_node_zero)
        for worker in self.workers:
            self._selector.register(worker.channel.reads, selectors.EVENT_READ, lambda w=worker: self._hear(w))
            for name, pipe in (("out", worker.process.stdout), ("err", worker.process.stderr)):
                if pipe is not None and not (worker.host and name == "out"):
                    os.set_blocking(pipe.fileno(), False)
                    self._selector.register(
                        pipe, selectors.EVENT_READ, lambda w=worker, n=name, p=pipe: self._show(w, n, p)
                    )
        self._listener = threading.Thread(target=self._listen, name="comem-cluster", daemon=True)
        try:
            self._listener.start()
        except RuntimeError as error:
            self._listener = None
            raise StartError(f"a cluster cannot be started: {error}; {LIMITS}") from error

    def _listen(self) -> None:
        while not self._ending:
            for key, _ in self._selector.select():
                try:
                    key.data()
                except Exception as error:  # noqa: BLE001 - without this thread everybody would wait for ever
                    with contextlib.suppress(KeyError, ValueError):
                        self._selector.unregister(key.fileobj)
                    self.give_up(Stopped(f"what workers said could not be understood: {error!r}; make a new cluster"))

    def _hear_node_zero(self) -> None:
        data = self._line.recv(1 << 20)
        if not data:
            self._selector.unregister(self._line)
            return
        for line in data.split(b"\n"):
            if b'"address"' in line and self._zero is None:
                self._zero = json.loads(line)["addr"]
                for worker in self.workers:
                    self._tell(worker, "zero", self._zero)

    def _tell(self, worker: Worker, *message: Any) -> None:
        try:
            worker.channel.send(*message)
        except OSError:
            pass  # its end is noticed where it is listened to
        except BaseException:
            # What comes next would be taken for the rest of this message.
            self.give_up_halfway()
            raise

    def _hear(self, worker: Worker) -> None:
        try:
            message = worker.channel.receive()
        except (EOFError, OSError):
            self._ended(worker)
            return
        except Garbled as error:
            worker.kill()
            worker.garbled = (
                f"says {error} where a message is due; see to it that its shell prints nothing when a program is "
                "started there"
            )
            self._ended(worker)
            return
        self._drain(worker)
        if message[0] == "joined":
            worker.pid, worker.joined = message[1], True
            self._early.put((worker, message[2]))
        else:
            _, task, good, result = message
            with self._lock:
                callback = self._tasks.get(task)
            if callback is not None:
                callback(worker.node, good, result)

    def _drain(self, worker: Worker) -> None:
        """Shows what a worker printed before it answered."""
        for name, pipe in (("out", worker.process.stdout), ("err", worker.process.stderr)):
            if pipe is not None and not (worker.host and name == "out"):
                self._show(worker, name, pipe)

    def _show(self, worker: Worker, name: str, pipe: Any) -> None:
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except (BlockingIOError, ValueError):
            return
        except OSError:
            data = b""
        if not data:
            try:
                self._selector.unregister(pipe)
            except (KeyError, ValueError):
                pass
        with self._showing:
            lines = (worker.partial[name] + data).split(b"\n")
            worker.partial[name] = lines.pop() if data or not lines[-1] else b""
            for line in lines:
                self._show_line(worker, name, line)

    def _show_line(self, worker: Worker, name: str, line: bytes) -> None:
        text = line.decode(errors="replace")
        if text.strip():
            worker.last = [*worker.last[1 - LAST_LINES :], text]
        if worker.joined and not self._ending:
            _wire.show(f"[{worker.node}] {text}", sys.stdout if name == "out" else sys.stderr)

    def show_rest(self) -> None:
        """Shows what workers have printed without ending the line."""
        with self._showing:
            for worker in self.workers:
                for name, text in worker.partial.items():
                    worker.partial[name] = b""
                    if text:
                        self._show_line(worker, name, text)

    def _ended(self, worker: Worker) -> None:
        """A worker is gone: node zero is told, as a launcher would, and whoever waits for an answer."""
        self._selector.unregister(worker.channel.reads)
        worker.gone = True
        # What was ended because of another is no news.
        if self._ending or worker.killed and not worker.garbled:
            return
        self.first_gone = self.first_gone or worker
        how = worker.how_it_ended()
        self._drain(worker)
        self.show_rest()
        if self.lost is not None:
            return
        lost = NodeLost(f"{worker} {how}; the job cannot go on; this interpreter can, and can have a new comem.Cluster")
        lost.node = worker.node
        self.lost = lost
        try:
            self._line.sendall(json.dumps({"type": "peer_ended", "node": worker.node, "how": how}).encode() + b"\n")
        except OSError:
            pass
        self.give_up(lost)

    def give_up(self, why: Error) -> None:
        """The job cannot go on: ends the workers that are left, and whoever waits for an answer waits no longer."""
        with self._lock:
            self.lost = self.lost or why
            callbacks = list(self._tasks.values())
        for worker in self.workers:
            if not worker.gone:
                worker.kill()
        self._early.put((None, self.lost))
        for callback in callbacks:
            callback(0, False, b"")

    def give_up_halfway(self) -> None:
        """The job cannot go on, because workers wait for the rest of what this process began."""
        self.give_up(Stopped("this cluster was interrupted while it told the workers what to do; make a new one"))

    # Work

    def check(self) -> None:
        """Raises what keeps the workers from working.

        Raises
        ------
        NodeLost
            When one of them has ended.
        """
        if self.lost is not None:
            self.told = True
            lost = type(self.lost)(*self.lost.args)
            lost.node = self.lost.node
            raise lost
        self.check_process()

    def check_process(self) -> None:
        """Raises an exception in a child made by fork.

        Raises
        ------
        ForkError
            There.
        """
        if self.pid != os.getpid():
            raise ForkError("this process was made by fork and is no node of the job; use the start method \"spawn\"")

    def expect(self, callback: Callable[[int, bool, bytes], None]) -> int:
        """The number of a new task; answers to it go to ``callback(node, good, result)``, in a thread of its own.

        Who was given up before this will not answer: look at ``lost`` afterwards, before waiting.
        """
        with self._lock:
            self._next_task += 1
            self._tasks[self._next_task] = callback
            return self._next_task

    def forget(self, task: int) -> bool:
        """No more answers are awaited; gives whether any were."""
        with self._lock:
            return self._tasks.pop(task, None) is not None

    def tell_all(self, *message: Any) -> None:
        """Sends every worker a message."""
        for worker in self.workers:
            self._tell(worker, *message)

    def tell(self, node: int, *message: Any) -> None:
        """Sends one worker a message."""
        self._tell(self.workers[node - 1], *message)

    def interrupt(self) -> None:
        """Hands Ctrl-C on to the workers of this host."""
        import signal

        for worker in self.workers:
            if not worker.host and worker.process.poll() is None:
                worker.process.send_signal(signal.SIGINT)

    # End

    def finish(self) -> None:
        """Lets the workers come to the end of the job, where this process goes as well."""
        if self.pid == os.getpid() and self.lost is None:
            self.show_rest()
            self._ending = True
            self.tell_all("end")

    def abandon(self) -> None:
        """Ends all workers."""
        self._ending = True
        for worker in self.workers:
            worker.kill()
            worker.gone = True
            worker.channel.close()
        self._see_them_end()

    def dissolve(self) -> None:
        """Waits for the end of workers that have come to the end of the job, and listens to nobody any more."""
        self._ending = True
        self._see_them_end()
        # The listener wakes up, and so does the runtime's own, which has nothing more to do.
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        if self._listener is not None:
            self._listener.join(GOODBYE_S)
        for worker in self.workers:
            worker.gone = True
            worker.channel.close()
        self._line.close()

    def _see_them_end(self) -> None:
        until = time.monotonic() + GOODBYE_S
        for worker in self.workers:
            try:
                worker.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()


def refuse_second_job() -> None:
    """Sees to it that this process may become a node of a new job.

    Raises
    ------
    MisuseError
        When it is one that somebody else has started.
    """
    if os.environ.get("COMEM_NODE") is not None or os.environ.get("COMEM_CONTROL_FD") is not None:
        raise MisuseError(
            "this process was started as a node of a job (comem run); a Cluster starts nodes of its own from a plain "
            "interpreter"
        )
