"""System calls on shared arrays whose pages are not here: they work, or say that they do not; nothing gets lost in
between."""

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap

import pytest
from jobs import COMMAND, lines, run

START = """
import comem, io, os, pickle, socket, sys, tempfile, threading
import numpy as np
n = 1 << 17
a = comem.zeros(n, home=1)
if comem.rank == 1:
    a[:] = np.arange(n)
comem.barrier()
expected = np.arange(n, dtype=float)
def check(what, got):
    print(what, "ok" if np.array_equal(np.asarray(got), expected) else "WRONG")
if comem.rank == 0:
    path = tempfile.mktemp()
"""

END = """
    if os.path.exists(path): os.remove(path)
comem.barrier()
"""

READS = {
    "tofile": "a.tofile(path); check('tofile', np.fromfile(path))",
    "save": "np.save(path + '.npy', a); check('save', np.load(path + '.npy')); os.remove(path + '.npy')",
    "savez": "np.savez(path + '.npz', a=a); check('savez', np.load(path + '.npz')['a']); os.remove(path + '.npz')",
    "write": """
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    done = 0
    while done < a.nbytes: done += os.write(fd, memoryview(a).cast('B')[done:])
    check('write', np.fromfile(path))""",
    "file_write": "open(path, 'wb').write(a); check('file_write', np.fromfile(path))",
    "sendall": """
    left, right = socket.socketpair()
    got = bytearray()
    def drain():
        while data := right.recv(1 << 16): got.extend(data)
    thread = threading.Thread(target=drain, daemon=True); thread.start()
    left.sendall(a); left.close(); thread.join()
    check('sendall', np.frombuffer(bytes(got)))""",
    "pickle": """
    with open(path, 'wb') as file: pickle.dump(a, file, protocol=5)
    check('pickle', pickle.load(open(path, 'rb')))""",
    "memmap": "m = np.memmap(path, float, 'w+', shape=n); m[:] = a; m.flush(); check('memmap', np.fromfile(path))",
}

FILLS = {
    "readinto": "expected.tofile(path); open(path, 'rb', buffering=0).readinto(a); check('readinto', a)",
    "buffered_readinto": "expected.tofile(path); open(path, 'rb').readinto(a); check('buffered_readinto', a)",
    "readv": "expected.tofile(path); fd = os.open(path, os.O_RDONLY); os.readv(fd, [a]); check('readv', a)",
    "recv_into": """
    left, right = socket.socketpair()
    thread = threading.Thread(target=left.sendall, args=(expected,), daemon=True); thread.start()
    done, view = 0, memoryview(a).cast('B')
    while done < a.nbytes: done += right.recv_into(view[done:])
    thread.join(); check('recv_into', a)""",
}

ARROW_READS = {
    "arrow_ipc": """
    import pyarrow as pa
    batch = pa.record_batch([pa.array(a)], names=["x"])
    assert batch.column(0).buffers()[1].address == a.ctypes.data
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, batch.schema) as out: out.write(batch)
    check('arrow_ipc', pa.ipc.open_file(pa.memory_map(path)).read_all()["x"].to_numpy())""",
    "arrow_buffer": """
    import pyarrow as pa
    with pa.OSFile(path, "wb") as file: file.write(pa.py_buffer(a))
    check('arrow_buffer', np.fromfile(path))""",
    "arrow_compute": """
    import pyarrow as pa, pyarrow.compute
    assert pa.compute.sum(pa.chunked_array([a, a[::2]])).as_py() == a.sum() + a[::2].sum()
    check('arrow_compute', pa.compute.add(pa.array(a), 0.0).to_numpy())""",
}
ARROW_FILLS = {
    "arrow_readinto": """
    import pyarrow as pa
    expected.tofile(path)
    assert pa.OSFile(path).readinto(a) == a.nbytes
    check('arrow_readinto', a)""",
}
if importlib.util.find_spec("pyarrow"):
    READS.update(ARROW_READS)
    FILLS.update(ARROW_FILLS)


def test_arrow_is_there_to_be_tested():
    pytest.importorskip("pyarrow", reason="SKIP: Python: Arrow with shared arrays: pyarrow is not installed")


def program(body):
    # What fills the array begins with other numbers in it.
    return START + "    " + body.strip().replace("\n    ", "\n    ") + END


@pytest.mark.parametrize("name", READS)
def test_what_reads_an_array_gets_all_of_it(name):
    assert lines(run(2, program(READS[name])), 0) == [f"{name} ok"]


@pytest.mark.parametrize("name", FILLS)
def test_what_fills_an_array_fills_all_of_it(name):
    body = FILLS[name].replace("expected", "mine")
    text = START.replace("a[:] = np.arange(n)", "a[:] = -1") + "    mine = expected\n    " + body.strip() + END
    result = run(2, text + "print('other', a[-1] == n - 1)\n")
    assert lines(result, 0) == [f"{name} ok", "other True"] and lines(result, 1) == ["other True"]


@pytest.mark.parametrize("name", sorted({**READS, **FILLS}))
def test_without_the_wrapper_they_work_or_raise(name):
    text = START
    body = {**READS, **FILLS}[name].strip()
    if name in FILLS:
        text = text.replace("a[:] = np.arange(n)", "a[:] = -1")
    body = "\n    ".join(
        ["try:"]
        + [
            "    " + line.strip() if not line.startswith("        ") else "    " + line[4:]
            for line in body.splitlines()
        ]
    )
    text += "    " + body + "\n    except (OSError, ValueError) as error: print('raised', type(error).__name__)" + END
    result = run(2, text, env={"COMEM_WRAP": "off"})
    assert lines(result, 0)[0] == f"{name} ok" or lines(result, 0)[0].startswith("raised"), result


def test_an_interpreter_can_preload_the_wrapper_itself():
    pytest.importorskip("cloudpickle", reason="SKIP: Python clusters: cloudpickle is not installed")
    wrapper = subprocess.run([*COMMAND[:-1], "wrapper"], capture_output=True, text=True, check=True).stdout.strip()
    text = """
        import comem, os
        with comem.Cluster(2) as c:
            a = c.zeros(100_000, home=1)
            print(os.write(os.open(os.devnull, os.O_WRONLY), a), a.tofile("/dev/null"))
            read, write = os.pipe()
            os.write(write, bytes(range(1, 9)))
            print(os.readv(read, [a]), a.view("u1")[7])
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        env={**os.environ, "LD_PRELOAD": wrapper},
        check=False,
    )
    assert result.stdout == "800000 None\n8 8\n", result


def test_a_package_in_a_directory_with_a_blank_or_a_colon_has_its_wrapper(tmp_path):
    pytest.importorskip("cloudpickle", reason="SKIP: Python clusters: cloudpickle is not installed")
    package = os.path.dirname(importlib.util.find_spec("comem").origin)
    place = tmp_path / "my packages: all"
    # Of a path list, a colon would end the name: what is imported lies behind a link.
    (tmp_path / "path").symlink_to(place)
    shutil.copytree(package, place / "comem", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "path"), "COMEM_RUNTIME_DIR": str(tmp_path / "run")}
    text = """
        import comem, os
        comem._command.WRAPPER = os.path.realpath(comem._command.WRAPPER)
        print(comem._command.wrapper())
        with comem.Cluster(2) as c:
            print([w for w in set(c.map(lambda _: os.environ.get("LD_PRELOAD"), range(50))) if w])
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, env=environment, check=False
    )
    wrapper, preloaded = result.stdout.splitlines()
    assert wrapper.startswith(str(tmp_path / "run")) and os.path.isfile(wrapper), result
    assert preloaded == str([wrapper]), result


@pytest.mark.parametrize("name", ["tofile", "write", "sendall", "save"])
def test_without_the_wrapper_prefetching_helps(name):
    body = "comem.prefetch(a)\n    " + READS[name].strip()
    assert lines(run(2, program(body), env={"COMEM_WRAP": "off"}), 0) == [f"{name} ok"]
