"""Builds the wheel: maturin builds the extension module, and before that the command `comem`, the library for programs
in C, C++ and Fortran, and the one that lets system calls use shared memory are built and laid beside it, with the
headers.

COMEM_BUILD_PROFILE names Cargo's profile, `release` unless it is set: tests build with `dev`, whose libraries are there
already.
The wheel's platform is the oldest C library that all its files run with, read from the files (`manylinux_2_34_x86_64`).
"""

import base64
import csv
import hashlib
import io
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile

import maturin
from maturin import *  # noqa: F403 - the hooks that need nothing here

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = HERE.parents[1]
BIN = HERE / "python" / "comem" / "_bin"
PROFILE = os.environ.get("COMEM_BUILD_PROFILE") or "release"
os.environ["MATURIN_PEP517_ARGS"] = f"{os.environ.get('MATURIN_PEP517_ARGS', '')} --profile {PROFILE}"

#: What every Linux of a manylinux platform has (PEP 600). A file that needs more runs on machines like this one alone.
EVERYWHERE = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libutil.so.1", "libgcc_s.so.1"}


def _built():
    """Builds command and libraries; the directory where they are."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or SOURCES / "target")
    packages = ["-p", "comem-cli", "-p", "comem-wrap", "-p", "comem-c"]
    subprocess.run(["cargo", "build", "--profile", PROFILE, "--locked", *packages], cwd=HERE, check=True)
    return SOURCES / target / ("debug" if PROFILE == "dev" else PROFILE)


def _lay_out():
    built = _built()
    # The old command may be running: its file goes, and a new one takes the name.
    shutil.rmtree(BIN, ignore_errors=True)
    shutil.copytree(SOURCES / "include", BIN / "include", ignore=shutil.ignore_patterns("*.o", "*.mod"))
    # A wheel has no symbolic links. The linker is told by a text which library it is to take.
    [name] = set(re.findall(rb"\0(libcomem\.so\.[0-9.]+)\0", (built / "libcomem.so").read_bytes()))
    (BIN / "libcomem.so").write_text(f"/* GNU ld script */\nINPUT({name.decode()})\n")
    for source, to in (("comem", "comem"), ("libcomem_wrap.so", "libcomem_wrap.so"), ("libcomem.so", name.decode())):
        shutil.copy2(built / source, BIN / to)
        if PROFILE != "dev" and shutil.which("strip"):
            subprocess.run(["strip", "--strip-unneeded", BIN / to], check=True)


def _needs(library):
    """Which libraries an ELF file names, and the newest version of the C library's symbols among them.

    Nothing of other files.
    """
    if library.read_bytes()[:4] != b"\x7fELF":
        return set(), (0, 0)
    command = ["readelf", "--wide", "--dynamic", "--version-info", library]
    read = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    named = set(re.findall(r"\(NEEDED\).*\[(.*)\]", read.stdout))
    versions = [(int(major), int(minor)) for major, minor in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", read.stdout)]
    return named, max(versions, default=(0, 0))


def _platform(folder):
    """The platform of the files in a folder; the machine's own where that cannot be told."""
    machine = platform.machine()
    ours = {path.name for path in folder.rglob("*.so*")}
    loader = {f"ld-linux-{machine.replace('_', '-')}.so.{number}" for number in (1, 2)}
    if not shutil.which("readelf"):
        return f"linux_{machine}"
    needed, newest = set(), (2, 17)
    for path in folder.rglob("*"):
        if path.is_file():
            named, version = _needs(path)
            needed |= named
            newest = max(newest, version)
    beyond = needed - EVERYWHERE - loader - ours
    if beyond:
        print(f"comem: the wheel is for machines like this one alone: it needs {', '.join(sorted(beyond))}")
        return f"linux_{machine}"
    return f"manylinux_{newest[0]}_{newest[1]}_{machine}"


def _with_platform(wheel):
    """Gives a wheel the platform that is true of it: in its name, and in its own description."""
    with tempfile.TemporaryDirectory() as unpacked, zipfile.ZipFile(wheel) as old:
        folder = pathlib.Path(unpacked)
        old.extractall(folder)
        name = re.sub(r"-[^-]+\.whl$", f"-{_platform(folder)}.whl", wheel.name)
        tag = "-".join(name[: -len(".whl")].split("-")[2:])
        [description] = folder.glob("*.dist-info/WHEEL")
        lines = [line for line in description.read_text().splitlines() if line and not line.startswith("Tag: ")]
        description.write_text("\n".join([*lines, f"Tag: {tag}"]) + "\n")
        [record] = folder.glob("*.dist-info/RECORD")
        record.write_text(_record(folder, record))
        fresh = wheel.with_name(name + ".new")
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as new:
            for entry in old.infolist():
                new.writestr(entry, (folder / entry.filename).read_bytes(), zipfile.ZIP_DEFLATED)
    wheel.unlink()
    os.replace(fresh, wheel.with_name(name))
    return name


def _record(folder, record):
    """The list of a wheel's files with their hashes."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        contents = path.read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
        hashed = ("", "") if path == record else (f"sha256={digest}", len(contents))
        rows.writerow([path.relative_to(folder).as_posix(), *hashed])
    return text.getvalue()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _lay_out()
    name = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    return _with_platform(pathlib.Path(wheel_directory) / name)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _lay_out()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)
