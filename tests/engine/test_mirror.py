"""A run's copy at an address: whole at every checkpoint, whatever breaks off in between."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.engine.build import check
from symbiont_ecology.engine.mirror import Mirror, RemoteFolder, fetch_copy
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.errors import ConfigError, RunError
from toy import Crash, ToyHost, toy_config, toy_ecology

SAME = ("state.json", "events.jsonl")


def mirrored(address: str | None, generations: int = 6) -> RunConfig:
    config = toy_config(
        5, generations, checkpoint_every=2, strategy=toy_ecology(questions=2, samples=2)
    )
    return config.model_copy(update={"run": config.run.model_copy(update={"mirror": address})})


def fetched(address: str, folder: Path) -> Path:
    fetch_copy(address, folder, passed=lambda done, total: None)
    return folder


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = [folder / name for name in SAME] + sorted((folder / "blobs").iterdir())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'there'}"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    start(mirrored(None), folder, host=ToyHost())
    return bytes_of(folder)


def test_a_copy_is_the_run_and_goes_on_as_the_run_would(
    address: str, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    start(mirrored(address, 4), tmp_path / "here", host=ToyHost())
    copy = fetched(address, tmp_path / "copy")
    assert bytes_of(copy) == bytes_of(tmp_path / "here")
    assert (copy / "timings.jsonl").read_bytes() == (tmp_path / "here/timings.jsonl").read_bytes()
    resume(copy, overrides=["run.generations=6"], host=ToyHost())
    assert bytes_of(copy) == undisturbed
    assert bytes_of(fetched(address, tmp_path / "again")) == undisturbed


def test_whatever_breaks_off_the_copy_has_a_whole_checkpoint(
    tmp_path: Path, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, left, generations = RemoteFolder.write, 0, set[int]()

    def breaks(there: RemoteFolder, name: str, data: bytes) -> None:
        """Half a file may be written before a connection is lost, but stores show whole ones."""
        nonlocal left
        left -= 1
        if left < 0:
            raise RunError("the connection is lost")
        write(there, name, data)

    for cut in range(1, 400, 5):
        address, left = f"memory://{tmp_path.name}/{cut}", cut
        monkeypatch.setattr(RemoteFolder, "write", breaks)
        is_whole = False
        with suppress(RunError):
            start(mirrored(address), tmp_path / f"here {cut}", host=ToyHost())
            is_whole = True
        monkeypatch.setattr(RemoteFolder, "write", write)
        if "state.json" in RemoteFolder(address).names():
            copy = fetched(address, tmp_path / f"copy {cut}")
            generations.add(load_state(copy).generation)
            resume(copy, host=ToyHost())
            assert bytes_of(copy) == undisturbed
            shutil.rmtree(copy)
        shutil.rmtree(tmp_path / f"here {cut}")
        if is_whole:
            break
    assert is_whole
    assert generations == {0, 2, 4, 6}


def test_a_second_writer_is_noticed(address: str, tmp_path: Path) -> None:
    start(mirrored(address), tmp_path / "here", host=ToyHost())
    first = Mirror(tmp_path / "here", address)
    Mirror(tmp_path / "here", address).push()
    with pytest.raises(RunError, match="another process writes to file://"):
        first.push()


@pytest.mark.parametrize("name", ["notes.txt", "notes.jsonl", "blobs/notes.safetensors"])
def test_links_are_not_sent(name: str, address: str, tmp_path: Path) -> None:
    start(mirrored(address), tmp_path / "here", host=ToyHost())
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "here" / name).symlink_to(tmp_path / "secret")
    Mirror(tmp_path / "here", address).push()
    assert not [sent for sent in RemoteFolder(address).names() if "notes" in sent]


def test_stray_files_in_the_folder_of_a_run_do_not_keep_its_copy_from_being_fetched(
    address: str, tmp_path: Path
) -> None:
    here, stray = tmp_path / "here", (".DS_Store", "my notes.jsonl", "überblick.png", ".a.yaml.swp")
    start(mirrored(address, 2), here, host=ToyHost())
    for name in stray:
        (here / name).write_text("{}\n")
        (here / "blobs" / name).write_text("{}\n")
    (here / "blobs" / "more").mkdir()
    Mirror(here, address).push()
    for name in stray:  # as an earlier version sent them
        RemoteFolder(address).write(name, b"")
    RemoteFolder(address).write("a/b/c", b"")
    copy = fetched(address, tmp_path / "copy")
    assert not any((copy / name).exists() for name in (*stray, "a"))
    resume(copy, overrides=["run.generations=4"], host=ToyHost())


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("there", "expected an address such as s3://bucket/run, got 'there'"),
        ("nope://x/y", "nothing opens nope://x/y: "),
    ],
)
def test_an_address_that_nothing_opens_is_refused_before_a_model_loads(
    address: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        check(mirrored(address))


def test_a_fetch_that_was_killed_is_typed_again(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(mirrored(address, 2), tmp_path / "here", host=ToyHost())

    def die(there: RemoteFolder, name: str) -> bytes:
        if name == "state.json":
            raise Crash
        return read(there, name)

    read = RemoteFolder.read
    with monkeypatch.context() as patch:
        patch.setattr(RemoteFolder, "read", die)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # a killed process cleans nothing
        with pytest.raises(Crash):
            fetched(address, tmp_path / "copy")
    assert [path.name for path in tmp_path.glob("*copy*")] == [".copy.new"]
    assert bytes_of(fetched(address, tmp_path / "copy")) == bytes_of(tmp_path / "here")
    assert [path.name for path in tmp_path.glob("*copy*")] == ["copy"]


def test_a_fetch_into_a_link_or_beside_one_writes_elsewhere_never(
    address: str, tmp_path: Path
) -> None:
    start(mirrored(address, 2), tmp_path / "here", host=ToyHost())
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".copy.new").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"cannot write .*copy: File exists"):
        fetched(address, tmp_path / "copy")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_what_is_no_copy_is_refused(address: str, tmp_path: Path) -> None:
    there = RemoteFolder(address)
    with pytest.raises(RunError, match=r"no run at file://.*: expected state\.json there"):
        fetched(address, tmp_path / "copy")
    there.write("state.json", b"{}")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "x").touch()
    with pytest.raises(RunError, match="used is in use: choose another --out"):
        fetched(address, tmp_path / "used")


def test_a_copy_that_was_brought_before_stays_as_it_is_until_it_goes_on(
    address: str, tmp_path: Path
) -> None:
    start(mirrored(address, 2), tmp_path / "here", host=ToyHost())
    copy = fetched(address, tmp_path / "copy")
    before = bytes_of(copy)
    assert bytes_of(fetched(address, copy)) == before
    with (copy / "state.json").open("ab") as state:
        state.write(b" ")
    with pytest.raises(RunError, match="copy is in use: choose another --out"):
        fetched(address, copy)


def test_a_log_that_was_written_anew_and_outgrew_the_sent_one_is_sent_anew(
    address: str, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    start(mirrored(None, 2), here, host=ToyHost())
    mirror, log = Mirror(here, address), here / "transcripts.jsonl"
    first = [b'{"line": %d}\n' % number for number in range(90)]
    log.write_bytes(b"".join(first))
    mirror.push()
    log.write_bytes(b"".join([*first[::2], *first[1::2], *first]))
    mirror.push()
    assert (fetched(address, tmp_path / "copy") / log.name).read_bytes() == log.read_bytes()
    with log.open("ab") as file:
        file.write(b'{"line": 90}\n')
    mirror.push()
    assert (fetched(address, tmp_path / "again") / log.name).read_bytes() == log.read_bytes()
