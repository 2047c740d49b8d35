"""Processes that somebody else has started join a job: by an id, beside mpi4py, as workers of Dask; and the programs of
docs/launchers.md, with what starts them where it is installed."""

import importlib.util
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

import pytest

PAGE = pathlib.Path(__file__).resolve().parents[4] / "docs" / "launchers.md"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("COMEM_")}


def block(section, language="python"):
    """The only program of a section of the page."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    (found,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return found


def run(command, **variables):
    ended = subprocess.run(command, env={**CLEAN, **variables}, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def side_by_side(program, processes):
    """Runs processes, with a dict of variables for each; gives what each printed."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [
        subprocess.Popen([sys.executable, *program], env={**CLEAN, **variables}, **pipes) for variables in processes
    ]
    ended = [process.communicate(timeout=120) for process in started]
    assert all(process.returncode == 0 for process in started), ended
    return [out.strip() for out, _ in ended]


def test_an_id_goes_through_a_pool_of_processes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(block("A unique id"))
    assert run([sys.executable, str(program)]).strip() == "[33.0, 33.0, 33.0]"


JOINS_TWICE = """
import os, sys, time
import comem

rank = int(sys.argv[1])


def id_of(name):
    path = os.path.join(sys.argv[2], name)
    if rank == 0:
        with open(path + ".part", "w") as file:
            file.write(comem.unique_id())
        os.rename(path + ".part", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path) as file:
        return file.read()


first = id_of("first")
for wrong in ({"unique_id": "nonsense", "processes": 2}, {"unique_id": first}, {"unique_id": first, "rank": 2,
              "processes": 2}, {"unique_id": first, "processes": 2, "colour": "red"}, {"processes": 2}):
    try:
        comem.init(**wrong)
        print("accepted", wrong)
    except comem.ArgumentError:
        pass
comem.init(unique_id=first, rank=rank, processes=2, engine="msi", start_timeout="30s")
a = comem.zeros(2)
a[rank] = rank + 1
comem.barrier()
print(comem.rank, comem.size, a.sum())
try:
    comem.init(unique_id=first, rank=rank, processes=2)
except comem.MisuseError:
    print("once")
comem.finish()
try:
    comem.init(unique_id=first, rank=rank, processes=2)
except comem.StartError as error:
    print("a new id for each job" in str(error))
comem.init(unique_id=id_of("second"), processes=2)
b = comem.full(4, 3.0)
print(comem.size, b.sum())
"""


def test_a_process_joins_one_job_after_the_other_and_what_makes_no_sense_is_refused(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(JOINS_TWICE)
    lines = "{} 2 3.0\nonce\nTrue\n2 12.0"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [
        subprocess.Popen([sys.executable, str(program), str(rank), str(tmp_path)], env=CLEAN, **pipes)
        for rank in range(2)
    ]
    ended = [process.communicate(timeout=120) for process in started]
    assert [out.strip() for out, _ in ended] == [lines.format(0), lines.format(1)], ended


def test_torchruns_variables(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(block("torchrun"))
    with socket.socket() as store:
        store.bind(("127.0.0.1", 0))
        port = str(store.getsockname()[1])
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    said = side_by_side([str(program)], [{**common, "RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")])
    assert said == ["node 0 of 2: 2", "node 1 of 2: 2"]


def test_a_real_torchrun(tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("SKIP: Python: torch is not installed")
    program = tmp_path / "program.py"
    program.write_text(block("torchrun"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    assert sorted(run([*torchrun, str(program)]).splitlines()) == ["node 0 of 2: 2", "node 1 of 2: 2"]


def openmpi():
    for mpirun in filter(None, map(shutil.which, ("mpirun.openmpi", "mpirun"))):
        about = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
        # Debian's calls itself (OpenRTE) by the one name, and (Open MPI) by the other.
        if "OpenRTE" in about or "Open MPI" in about:
            return [mpirun, "-n", "3", "--oversubscribe"]
    pytest.skip("SKIP: Python: there is no mpirun of Open MPI (Debian: openmpi-bin)")


def said_by_nodes(out):
    """What nodes printed; mpirun mixes text and line ends of several."""
    return sorted(re.findall(r"node \d of \d: \d", out))


AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def test_mpi4py_sends_and_comem_shares_in_one_program(tmp_path):
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("SKIP: Python: mpi4py is not installed")
    program = tmp_path / "program.py"
    program.write_text(block("MPI"))
    out = run([*openmpi(), sys.executable, str(program)], **AS_ROOT)
    assert said_by_nodes(out) == [f"node {rank} of 3: 9" for rank in range(3)]


def test_under_mpirun_an_ordinary_program_is_one_job(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(block("torchrun"))
    out = run([*openmpi(), sys.executable, str(program)], **AS_ROOT)
    assert said_by_nodes(out) == [f"node {rank} of 3: 3" for rank in range(3)]


def needs_dask():
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("SKIP: Python: dask's distributed is not installed")


def test_tasks_of_dask_find_shared_arrays(tmp_path):
    needs_dask()
    program = tmp_path / "program.py"
    program.write_text(block("Dask"))
    # Each part is 250,000 numbers: 0, 1, 2, 3.
    assert run([sys.executable, str(program)]).strip() == "1500000.0"


SHARES_256_MIB = """
import numpy as np
import comem, comem.dask
from dask.distributed import Client, wait


def fill(a, part):
    a.reshape(4, -1)[part] = part + 1
    return a.nbytes


def total(a):
    return float(a.sum())


if __name__ == "__main__":
    client = Client(n_workers=4, threads_per_worker=1, dashboard_address=None)
    try:
        comem.dask.Comms(Client(n_workers=2, processes=False, dashboard_address=None))
    except comem.MisuseError as error:
        print(error)
    comms = comem.dask.Comms(client, engine="hlrc")
    a = comms.zeros(1 << 25)
    print(a)
    sizes = client.gather([client.submit(fill, a, n, workers=[w], pure=False) for n, w in enumerate(comms.workers)])
    print(sizes)
    comms.barrier()
    sums = [client.submit(total, a, workers=[w], pure=False) for w in comms.workers]
    print(client.gather(sums))
    print(comms.run(lambda a: (comem.rank, comem.allreduce(1)), a))
    comms.free(a)
    comms.close()
    # The workers may join another job.
    with comem.dask.Comms(client, workers=comms.workers[:2]) as comms:
        b = comms.array(np.arange(4.0))
        print(client.submit(total, b, workers=comms.workers, pure=False).result(), comms.run(lambda: comem.size))
"""


def test_256_mib_are_shared_by_four_workers_of_dask(tmp_path):
    needs_dask()
    program = tmp_path / "program.py"
    program.write_text(SHARES_256_MIB)
    lines = run([sys.executable, str(program)]).splitlines()
    total = float(sum(range(1, 5)) * (1 << 23))
    assert lines == [
        "workers that share a process cannot be nodes; start the cluster with processes=True",
        "comem.Shared(shape=(33554432,), dtype=float64)",
        str([1 << 28] * 4),
        str([total] * 4),
        str([(rank, 4) for rank in range(4)]),
        "6.0 [2, 2]",
    ]


def needs_ray():
    if importlib.util.find_spec("ray") is None:
        pytest.skip("SKIP: Python: ray is not installed")


def test_methods_of_rays_actors_find_shared_arrays(tmp_path):
    needs_ray()
    program = tmp_path / "program.py"
    program.write_text(block("Ray"))
    assert run([sys.executable, str(program)], RAY_USAGE_STATS_ENABLED="0").strip().endswith("1500000.0")


RAY_SHARES_256_MIB = """
import comem.ray
import ray


@ray.remote(num_cpus=0)
class Worker(comem.ray.Node):
    def fill(self, a, part):
        a.reshape(4, -1)[part] = part + 1
        return a.nbytes

    def total(self, a):
        return float(a.sum())


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    workers = [Worker.remote() for _ in range(4)]
    with comem.ray.Comms(workers, engine="hlrc") as comms:
        a = comms.zeros(1 << 25)
        print(ray.get([worker.fill.remote(a, n) for n, worker in enumerate(workers)]))
        comms.barrier()
        print(ray.get([worker.total.remote(a) for worker in workers]))
"""


def test_256_mib_are_shared_by_four_actors_of_ray(tmp_path):
    needs_ray()
    program = tmp_path / "program.py"
    program.write_text(RAY_SHARES_256_MIB)
    lines = run([sys.executable, str(program)], RAY_USAGE_STATS_ENABLED="0").splitlines()
    total = float(sum(range(1, 5)) * (1 << 23))
    assert lines[-2:] == [str([1 << 28] * 4), str([total] * 4)]


def test_ctrl_c_ends_the_wait_for_others():
    program = "import comem; print(1, flush=True); comem.init(unique_id=comem.unique_id(), processes=2)"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], env=CLEAN, **pipes) as process:
        assert process.stdout.readline() == "1\n"
        # It waits by now, or is about to; either way the signal ends it.
        time.sleep(0.5)
        process.send_signal(2)
        _, err = process.communicate(timeout=60)
        assert "KeyboardInterrupt" in err, err
