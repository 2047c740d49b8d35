"""What workers have of the caller's interpreter: its flags, its path for modules, its environment."""

import json
import os
import pathlib
import stat
import subprocess
import sys
import textwrap

import comem
import pytest
from clusters import PATIENCE, alone

#: What tells how an interpreter was started and where it finds modules, on both sides alike.
STATE = """
import comem, json, os, sys, warnings

def state():
    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if not name.startswith(("_", "n_")) and
             isinstance(getattr(sys.flags, name), int) and name not in ("inspect", "interactive")}
    options = sorted(map(str, sys._xoptions.items()))
    return {"flags": flags, "path": sys.path, "options": options, "warnings": sys.warnoptions}

if __name__ == "__main__":
    with comem.Cluster(2) as c:
        print(json.dumps(c.run(state)))
"""


def run(*arguments, cwd, check=True, **environment):
    """Runs an interpreter with these arguments; what it printed, with its errors where it failed."""
    environment = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    command = [sys.executable, *map(str, arguments)]
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=PATIENCE, check=False
    )
    assert not check or result.returncode == 0, result.stdout + result.stderr
    return result.stdout


FLAGS = [
    (),
    ("-I",),
    ("-E",),
    ("-s",),
    ("-O",),
    ("-OO", "-B"),
    ("-b",),
    ("-X", "dev"),
    ("-W", "error::SyntaxWarning"),
    ("-X", "utf8", "-X", "faulthandler"),
    ("-X", "somebodys=own"),
    *([("-P",)] if sys.version_info >= (3, 11) else []),
    *([("-X", "int_max_str_digits=5000")] if sys.version_info >= (3, 11) else []),
]


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("how", ["script", "text"])
def test_workers_have_the_callers_flags_and_path(tmp_path, flags, how):
    (tmp_path / "here").mkdir()
    (tmp_path / "program.py").write_text(STATE)
    program = [tmp_path / "program.py"] if how == "script" else ["-c", STATE]
    mine, theirs = json.loads(run(*flags, *program, cwd=tmp_path / "here", PYTHONPATH=str(tmp_path / "lib")))
    assert theirs == mine
    # They have what the test means to test.
    implicit = mine["path"][0] in ("", str(tmp_path))
    assert implicit == (flags not in (("-I",), ("-P",)))


def test_a_path_that_the_program_has_changed_is_the_workers(tmp_path):
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "of_the_program.py").write_text("def double(x): return 2 * x")
    out = alone(
        f"""
        import sys
        sys.path.append({str(tmp_path / "extra")!r})
        import comem, of_the_program
        with comem.Cluster(2) as c:
            print(c.run(of_the_program.double, 4), c.run(lambda: sys.path) == [sys.path] * 2)
        """
    )
    assert out == "[8, 8] True\n"


#: A module of the user's own that is called as one of the standard library is.
OWN_QUEUE = "import os, sys\nopen(os.environ['COMEM_TEST_TRACE'], 'a').write(f'{os.getpid()}\\n')\n"


@pytest.mark.parametrize("name", ["queue", "threading", "random", "numpy", "selectors"])
def test_no_module_comes_from_a_directory_that_happens_to_be_current(tmp_path, name):
    (tmp_path / f"{name}.py").write_text(OWN_QUEUE)
    trace = tmp_path / "trace"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "program.py").write_text(STATE)
    mine, theirs = json.loads(run(tmp_path / "elsewhere" / "program.py", cwd=tmp_path, COMEM_TEST_TRACE=str(trace)))
    assert mine == theirs and not trace.exists()


@pytest.mark.parametrize("name", ["queue", "random", "selectors"])
def test_a_caller_that_came_to_such_a_directory_later_has_workers_all_the_same(tmp_path, name):
    # As a notebook, which has the current directory on its path, and its modules already.
    (tmp_path / f"{name}.py").write_text(OWN_QUEUE)
    trace = tmp_path / "trace"
    program = f"import os, comem\nos.chdir({str(tmp_path)!r})\n{STATE}"
    mine, theirs = json.loads(run("-c", program, cwd="/", COMEM_TEST_TRACE=str(trace)))
    assert mine == theirs and mine["path"][0] == "" and not trace.exists()


def test_nor_on_other_hosts(tmp_path):
    (tmp_path / "queue.py").write_text(OWN_QUEUE)
    shell = tmp_path / "rsh"
    shell.write_text(f'#!/bin/sh\nshift\ncd {tmp_path}\nexec sh -c "$*"\n')
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
    text = """
        import comem, os, sys, shutil
        gone = os.getcwd()
        with comem.Cluster(hosts=["a"]) as c:
            print(c.run(lambda: [sys.flags.no_user_site, "" in sys.path, os.getcwd() == gone])[1])
    """
    options = dict(COMEM_RSH=str(shell), COMEM_IFACE="lo", COMEM_TEST_TRACE=str(tmp_path / "trace"))
    (tmp_path / "work").mkdir()
    program = ["-s", "-c", textwrap.dedent(text)]
    here = str(pathlib.Path(comem.__file__).parent.parent)
    assert run(*program, cwd=tmp_path / "work", PYTHONPATH=here, **options) == "[1, True, True]\n"
    assert not (tmp_path / "trace").exists()


def test_modules_of_workers_processes_are_those_of_the_callers(tmp_path):
    # What workers start in turn finds no more modules than what the caller starts.
    show = "import os; print(os.environ.get('PYTHONPATH'))"
    out = alone(
        f"""
        import comem, subprocess, sys
        with comem.Cluster(2) as c:
            print(c.run(subprocess.check_output, [sys.executable, "-c", {show!r}]))
        """,
        PYTHONPATH=str(tmp_path),
    )
    assert out == f"[b'{tmp_path}\\n', b'{tmp_path}\\n']\n"


NO_INTERPRETER = {
    "none": ("sys.executable = None", "does not know its own program"),
    "empty": ("sys.executable = ''", "does not know its own program"),
    "missing": (
        "sys.executable = '/nowhere/python'",
        "/nowhere/python, which sys.executable names and which does not exist",
    ),
    "a directory": ("sys.executable = '/etc'", "/etc, which sys.executable names and which may not be run"),
    "not executable": (
        "sys.executable = '/etc/passwd'",
        "/etc/passwd, which sys.executable names and which may not be run",
    ),
    "no program": ("sys.executable = TEXT", "cannot run"),
    "another program": ("sys.executable = '/bin/false'", "ended with status 1; it had not joined yet"),
    "named wrongly": (
        "os.environ['COMEM_PYTHON'] = 'no-such-python'",
        "no-such-python, which COMEM_PYTHON names and which does not exist",
    ),
    "frozen": ("sys.frozen = True", "this program is frozen"),
}


@pytest.mark.parametrize(("change", "words"), NO_INTERPRETER.values(), ids=NO_INTERPRETER)
def test_without_an_interpreter_there_is_one_sentence_that_says_what_to_set(tmp_path, change, words):
    text = tmp_path / "text"
    text.write_bytes(b"\x00\x01 no program")
    text.chmod(0o755)
    out = alone(
        f"""
        import os, sys
        before, TEXT = sys.executable, {str(text)!r}
        {change}
        import comem
        try:
            comem.Cluster(3)
        except comem.StartError as error:
            print(error)
        os.environ["COMEM_PYTHON"] = before
        with comem.Cluster(2) as c:
            print(c.run(lambda: comem.rank))
        """,
        COMEM_PYTHON="",
    )
    lines = out.splitlines()
    assert words in lines[0] and ("COMEM_PYTHON" in lines[0] or "cannot run" in words) and lines[1:] == ["[0, 1]"], out


def test_on_other_hosts_an_interpreter_must_be_known_too():
    out = alone(
        """
        import os, sys
        before, sys.executable = sys.executable, None
        import comem
        for hosts in ["a"], ["localhost"]:
            try:
                comem.Cluster(hosts=hosts)
            except comem.StartError as error:
                print(error)
        os.environ["COMEM_REMOTE_PYTHON"] = before
        with comem.Cluster(hosts=["a"]) as c:
            print(c.size)
        """,
        COMEM_RSH="sh -c 'exec sh -c \"$1\"'",
        COMEM_IFACE="lo",
        COMEM_PYTHON="",
    )
    lines = out.splitlines()
    assert "set COMEM_REMOTE_PYTHON" in lines[0] and "set COMEM_PYTHON" in lines[1] and lines[2] == "2"


def test_programs_from_standard_input_and_archives_have_workers(tmp_path):
    program = "import comem\nwith comem.Cluster(2) as c: print(c.run(lambda: comem.rank))\n"
    result = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, timeout=PATIENCE, check=True, cwd=tmp_path
    )
    assert result.stdout == "[0, 1]\n"
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "part.py").write_text("def square(x): return x * x")
    (tmp_path / "app" / "__main__.py").write_text(
        "import comem, part\nwith comem.Cluster(2) as c: print(c.run(part.square, 3))\n"
    )
    subprocess.run([sys.executable, "-m", "zipapp", "app"], check=True, cwd=tmp_path, timeout=PATIENCE)
    assert run("app.pyz", cwd=tmp_path) == "[9, 9]\n"


def test_a_process_that_may_have_no_more_files_gets_one_sentence():
    out = alone(
        """
        import comem, os, resource
        open_now = max(map(int, os.listdir("/proc/self/fd")))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        for more in (1, 3, 6, 9, 12):
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + more, hard))
            try:
                comem.Cluster(4)
                print("started")
            except (comem.StartError, comem.SystemError) as error:
                print(type(error).__name__, str(error).count("\\n"))
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        with comem.Cluster(2) as c:
            print(c.run(lambda: comem.rank))
        """
    )
    lines = out.splitlines()
    assert (
        lines[-1] == "[0, 1]"
        and len(lines) == 6
        and {line.split()[0] for line in lines[:5]} <= {"StartError", "SystemError"}
    ), out


def test_a_thread_that_cannot_be_started_is_one_sentence():
    out = alone(
        """
        import comem, threading
        start = threading.Thread.start
        def refuses(thread):
            raise RuntimeError("can't start new thread")
        threading.Thread.start = refuses
        try:
            comem.Cluster(3)
        except comem.StartError as error:
            print(error)
        threading.Thread.start = start

        def fails():
            raise ValueError("no data")

        with comem.Cluster(2) as c:
            print(c.run(lambda: comem.rank))
            threading.Thread.start = refuses
            try:
                c.run(fails)
            except ValueError as error:
                print(error)
            try:
                import joblib
                comem.register_joblib()
                with joblib.parallel_backend("comem"):
                    joblib.Parallel()([joblib.delayed(abs)(-1)])
            except ImportError:
                print("ThreadError can't start new thread")
            except comem.ThreadError as error:
                print("ThreadError", error)
            threading.Thread.start = start
            print(c.run(lambda: comem.rank))
        """
    )
    lines = out.splitlines()
    assert "can't start new thread" in lines[0] and "ulimit -u" in lines[0] and lines[1:3] == ["[0, 1]", "no data"]
    assert "ThreadError" in lines[3] and "can't start new thread" in lines[3] and lines[4:] == ["[0, 1]"]


def test_a_process_that_may_have_no_more_processes_gets_one_sentence():
    if os.geteuid() == 0 and not hasattr(os, "setresuid"):
        pytest.skip("SKIP: Python: limits of processes do not hold for this user")
    program = """
        import comem, os, resource, sys
        if os.geteuid() == 0:
            # Limits do not hold for root.
            os.setresuid(54321, 54321, 54321)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        try:
            comem.Cluster(3)
            print("started")
        except (comem.StartError, comem.SystemError) as error:
            print("one sentence", "\\n" in str(error))
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd="/",
    )
    if "Permission denied" in result.stderr:
        pytest.skip("SKIP: Python: another user may not read this package")
    assert result.stdout == "one sentence False\n" and "Traceback" not in result.stderr, result.stdout + result.stderr


def test_without_a_number_there_are_as_many_nodes_as_processors_that_this_process_may_use():
    count = "import comem; print(comem.Cluster().size)"
    one = min(os.sched_getaffinity(0))
    alone_there = subprocess.run(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{one}}}); {count}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert alone_there.stdout == "1\n"
    assert 1 <= int(alone(count)) <= len(os.sched_getaffinity(0))
