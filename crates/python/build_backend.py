"""Builds the wheel: maturin builds the extension module, and before that the command `comem` and the library that lets
system calls use shared memory are built and laid beside it.

COMEM_BUILD_PROFILE names Cargo's profile, `release` unless it is set: tests build with `dev`, whose libraries are there already.
"""

import os
import pathlib
import shutil
import subprocess

import maturin
from maturin import *  # noqa: F403 - the hooks that need nothing here

HERE = pathlib.Path(__file__).resolve().parent
FILES = ("comem", "libcomem_wrap.so")
PROFILE = os.environ.get("COMEM_BUILD_PROFILE") or "release"
os.environ["MATURIN_PEP517_ARGS"] = f"{os.environ.get('MATURIN_PEP517_ARGS', '')} --profile {PROFILE}"


def _build_command() -> None:
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parents[1] / "target")
    packages = ["-p", "comem-cli", "-p", "comem-wrap"]
    subprocess.run(["cargo", "build", "--profile", PROFILE, "--locked", *packages], cwd=HERE, check=True)
    to = HERE / "python" / "comem" / "_bin"
    to.mkdir(exist_ok=True)
    for name in FILES:
        # A copy beside, then a rename: the old command may be running.
        shutil.copy2(HERE.parents[1] / target / ("debug" if PROFILE == "dev" else PROFILE) / name, to / (name + ".new"))
        os.replace(to / (name + ".new"), to / name)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _build_command()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _build_command()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)
