"""The library of ``cpu_kernels.c``: found where it came with the package, otherwise compiled, and
done without where that cannot be."""

from __future__ import annotations

import os
import platform
import runpy
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from symbiont_ecology.extensions.native import native_ops
from symbiont_ecology.extensions.native.compiling import BUILT, SOURCE, compile_library, digest

BUILD = Path(__file__).parents[3] / "scripts" / "build_native.py"
wheel_tag = runpy.run_path(str(BUILD))["wheel_tag"]

needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="no compiler here"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The library, as it is compiled for use."""
    path = tmp_path_factory.mktemp("library") / "library.so"
    assert compile_library(path) is None
    return path.read_bytes()


@pytest.fixture
def quick_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers that do not optimize, where nothing but their library's place counts."""
    path = os.environ["PATH"]
    for name in {*(sysconfig.get_config_var("CC") or "").split()[:1], "cc"}:
        if command := shutil.which(name):
            script = tmp_path / "quick" / name
            script.parent.mkdir(exist_ok=True)
            script.write_text(f'#!/bin/sh\nexec {command} "$@" -O0\n')
            script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'quick'}:{path}")


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A file that is not there."""
    return tmp_path / "none.so"


@pytest.fixture
def without_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiler has its name on the path, as in a small container."""
    empty = tmp_path / "bin"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))


@needs_compiler
@pytest.mark.usefixtures("quick_compilers")
def test_the_first_use_compiles_into_the_cache_and_the_next_one_finds_it(
    tmp_path: Path, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found, trouble = native_ops.find_library(built=nowhere)
    assert found is not None, trouble
    (kept,) = (tmp_path / "symbiont" / "passes").iterdir()
    assert digest() in kept.name
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # there is no compiler any more
    again, trouble = native_ops.find_library(built=nowhere)
    assert again is not None, trouble


@needs_compiler
@pytest.mark.usefixtures("quick_compilers")
def test_a_library_of_another_version_is_compiled_anew(tmp_path: Path) -> None:
    source = tmp_path / SOURCE.name
    source.write_text(SOURCE.read_text() + "\n")
    found, _ = native_ops.find_library(source, BUILT, tmp_path / "cache")
    assert found is not None
    assert found.source() == digest(source).encode() != digest().encode()


@pytest.mark.usefixtures("without_compilers")
def test_without_a_compiler_there_is_none_and_its_absence_is_said(
    tmp_path: Path, nowhere: Path
) -> None:
    found, trouble = native_ops.find_library(built=nowhere, cache=tmp_path / "cache")
    assert found is None
    assert "no C compiler" in trouble
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, nowhere: Path) -> None:
    (tmp_path / "file").write_text("a folder cannot be made below a file")
    found, trouble = native_ops.find_library(built=nowhere, cache=tmp_path / "file" / "cache")
    assert found is None
    assert "cannot be written" in trouble


@pytest.mark.usefixtures("without_compilers")
def test_a_library_that_does_not_load_is_not_used(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"for another machine")
    assert native_ops.find_library(built=damaged, cache=tmp_path / "cache")[0] is None


@needs_compiler
@pytest.mark.usefixtures("quick_compilers")
def test_a_compiler_without_openmp_makes_a_library_for_one_thread(tmp_path: Path) -> None:
    compiler = tmp_path / "plain-cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *-fopenmp*) exit 1;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    assert compile_library(tmp_path / "one.so", compilers=[str(compiler)]) is None
    assert b"GOMP_" not in (tmp_path / "one.so").read_bytes()
    assert native_ops.find_library(built=tmp_path / "one.so", cache=tmp_path)[0] is not None


@needs_compiler
def test_the_library_uses_the_openmp_of_torch(library: bytes) -> None:
    assert b"GOMP_parallel" in library
    assert b"libgomp" not in library


@pytest.mark.parametrize(
    ("symbols", "tag"),
    [
        (["GLIBC_2.2.5", "GLIBC_2.14"], "py3-none-manylinux_2_17_riscv"),
        (["GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.4"], "py3-none-manylinux_2_34_riscv"),
        (["puts"], None),
    ],
)
def test_a_wheel_asks_for_the_newest_glibc_that_its_library_needs(
    symbols: list[str], tag: str | None
) -> None:
    library = b"".join(b"\0" + symbol.encode() for symbol in symbols)
    assert wheel_tag(library, "riscv") == tag


@needs_compiler
def test_the_library_needs_no_newer_glibc_than_the_package_index_asks_for(library: bytes) -> None:
    tag = wheel_tag(library, platform.machine())
    assert tag == f"py3-none-manylinux_2_17_{platform.machine()}"
