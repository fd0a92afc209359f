from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import pytest

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.extension import GROUP, extensions
from symbiont_ecology.base.registry import Registry, knobs


class Animal(Protocol):
    def cry(self) -> str: ...


@pytest.fixture
def animals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[Animal]:
    """A registry over an empty package of its own."""
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [module for module in sys.modules if module.split(".")[0] == "zoo"]:
        del sys.modules[name]
    return Registry("animal", "zoo")


@dataclass(frozen=True)
class Coat:
    colour: str = "brown"


@dataclass(frozen=True)
class Dog:
    """Barks."""

    legs: int = 4  # how many, >= 0
    weight: float = 10.0
    tame: bool = True
    names: tuple[str, ...] = ()
    size: Literal["small", "big"] = "big"
    coat: Coat = Coat()
    sound: ClassVar[str] = "wuff"

    def __post_init__(self) -> None:
        if self.legs < 0:
            raise ValueError(f"expected legs >= 0, got {self.legs}")

    def cry(self) -> str:
        return self.sound * self.legs


@pytest.fixture
def dogs(animals: Registry[Animal]) -> Registry[Animal]:
    animals.register("dog")(Dog)
    return animals


def test_a_name_or_a_mapping_builds_the_same_component(dogs: Registry[Animal]) -> None:
    for spec in ("dog", {"kind": "dog"}, {"kind": "dog", "legs": 4, "names": []}):
        assert dogs.build(spec) == Dog()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"leg": 3}, "unknown key 'leg'; did you mean 'legs'? known keys: legs, weight, tame"),
        ({"sound": "x"}, "unknown key 'sound'"),
        ({"coat": {"color": "x"}}, "unknown key 'coat.color'; did you mean 'coat.colour'?"),
        ({"legs": "4"}, "animal 'dog': legs: expected a valid integer, got '4'"),
        ({"tame": 1}, "tame: expected a valid boolean, got 1"),
        ({"names": [1]}, "names.0: expected a valid string, got 1"),
        ({"names": "rex"}, "names: expected a list, such as [a, b], got 'rex'"),
        ({"size": "tiny"}, "size: expected 'small' or 'big', got 'tiny'"),
        ({"coat": object()}, "animal 'dog': only plain values"),
        ({"legs": -1}, "animal 'dog': expected legs >= 0, got -1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    dogs: Registry[Animal], fields: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        dogs.build({"kind": "dog", **fields})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_the_known_ones(dogs: Registry[Animal]) -> None:
    for find in (dogs.__getitem__, dogs.build):
        with pytest.raises(ConfigError, match=r"no animal 'dgo'; did you mean 'dog'\? known: dog"):
            find("dgo")


@pytest.mark.parametrize("spec", [{}, {"kind": 3}, {"legs": 4}, 3, None, ["dog"]])
def test_a_spec_without_a_name_is_refused(dogs: Registry[Animal], spec: object) -> None:
    with pytest.raises(
        ConfigError, match="animal: expected a name or a mapping with the key 'kind'"
    ):
        dogs.build(spec)  # type: ignore[arg-type]


def test_two_classes_cannot_share_a_name(dogs: Registry[Animal]) -> None:
    with pytest.raises(ConfigError, match="animal 'dog' is already"):
        dogs.register("dog")(Coat)
    dogs.register("dog")(Dog)  # a reload


def test_only_frozen_dataclasses_are_registered(animals: Registry[Animal]) -> None:
    @dataclass
    class Loose:
        pass

    for cls in (Loose, str):
        with pytest.raises(TypeError, match="frozen dataclass"):
            animals.register("x")(cls)


def test_other_packages_register_as_extensions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, animals: Registry[Animal]
) -> None:
    info = tmp_path / "plugin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    (tmp_path / "forest.py").write_text(
        "from symbiont_ecology.base.extension import Extension\n"
        "EXTENSION = Extension(parts={'animal': ('no_such_module_of_a_fox',)})\n"
    )
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nforest = forest:EXTENSION\n")
    extensions.cache_clear()
    with pytest.raises(ConfigError, match="module 'no_such_module_of_a_fox' cannot be imported"):
        animals.names()
    (tmp_path / "no_such_module_of_a_fox.py").write_text("seen = True\n")
    animals.names()
    assert "no_such_module_of_a_fox" in sys.modules
    for name in ("forest", "no_such_module_of_a_fox"):
        monkeypatch.delitem(sys.modules, name)
    extensions.cache_clear()


def test_every_knob_is_told(dogs: Registry[Animal]) -> None:
    assert dogs.doc("dog") == "Barks."
    legs, *others = knobs(dogs["dog"])
    assert legs == ("legs", "int", "4", "how many, >= 0")
    assert [knob.name for knob in others] == ["weight", "tame", "names", "size", "coat"]
