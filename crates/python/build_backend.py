"""Builds the wheel: maturin builds the extension module, and before that the command `comem` and the library that lets
system calls use shared memory are built and laid beside it."""

import os
import pathlib
import shutil
import subprocess

import maturin
from maturin import *  # noqa: F403 - the hooks that need nothing here

HERE = pathlib.Path(__file__).resolve().parent
FILES = ("comem", "libcomem_wrap.so")


def _build_command() -> None:
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parents[1] / "target")
    packages = ["-p", "comem-cli", "-p", "comem-wrap"]
    subprocess.run(["cargo", "build", "--release", "--locked", *packages], cwd=HERE, check=True)
    to = HERE / "python" / "comem" / "_bin"
    to.mkdir(exist_ok=True)
    for name in FILES:
        # A copy beside, then a rename: the old command may be running.
        shutil.copy2(HERE.parents[1] / target / "release" / name, to / (name + ".new"))
        os.replace(to / (name + ".new"), to / name)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _build_command()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _build_command()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)
