"""Compiles the C kernels as part of the package build; everything else is in pyproject.toml."""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# The build knows itself how to compile; it needs the standard library alone.
sys.path.insert(0, str(Path(__file__).parent / "kernels"))
from repro_kernels.cpu import build


class BuildKernels(build_ext):
    """Calls :mod:`repro_kernels.cpu.build` instead of compiling a Python extension."""

    def build_extension(self, ext: Extension) -> None:
        """Compile the shared object to where the wheel, or the source tree of an editable install, has it.

        One in the source tree that was compiled from the same sources is taken as it is, unless CC is set.
        """
        output = Path(self.get_ext_fullpath(ext.name))
        if os.environ.get("CC") or not build.is_current():
            build.build(output)
        elif output.resolve() != build.LIBRARY:
            output.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(build.LIBRARY, output)

    def get_ext_filename(self, fullname: str) -> str:
        """The path under the package root: a plain shared object for ctypes, without Python's ABI tag."""
        return str(Path(*fullname.split(".")).with_suffix(".so"))


class PlatformWheel(bdist_wheel):
    """The shared object knows no Python: one wheel per platform serves every Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        """``py3-none-<platform>``."""
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension(f"repro_kernels.cpu.{build.LIBRARY.stem}", sources=[])],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": PlatformWheel},
)
