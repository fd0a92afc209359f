"""The library of ``cpu_kernels.c``: found where it came with the package, otherwise compiled, and
done without where that cannot be."""

from __future__ import annotations

import platform
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from symbiont_ecology.extensions.native import native_ops
from symbiont_ecology.extensions.native.compiling import BUILT, SOURCE, compile_library, digest

BUILD = Path(__file__).parents[3] / "scripts" / "build_native.py"
wheel_tag = runpy.run_path(str(BUILD))["wheel_tag"]

needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="no compiler here"
)


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
def test_a_compiler_without_openmp_makes_a_library_for_one_thread(tmp_path: Path) -> None:
    compiler = tmp_path / "plain-cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *-fopenmp*) exit 1;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    assert compile_library(tmp_path / "one.so", compilers=[str(compiler)]) is None
    assert b"GOMP_" not in (tmp_path / "one.so").read_bytes()
    assert native_ops.find_library(built=tmp_path / "one.so", cache=tmp_path)[0] is not None


@needs_compiler
def test_the_library_uses_the_openmp_of_torch(tmp_path: Path) -> None:
    assert compile_library(tmp_path / "library.so") is None
    content = (tmp_path / "library.so").read_bytes()
    assert b"GOMP_parallel" in content
    assert b"libgomp" not in content


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
def test_the_library_needs_no_newer_glibc_than_the_package_index_asks_for(tmp_path: Path) -> None:
    compile_library(tmp_path / "library.so")
    tag = wheel_tag((tmp_path / "library.so").read_bytes(), platform.machine())
    assert tag == f"py3-none-manylinux_2_17_{platform.machine()}"
