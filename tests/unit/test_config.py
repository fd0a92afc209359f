from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symbiont_ecology.base import shipped
from symbiont_ecology.base.config_layers import merge
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import validate
from symbiont_ecology.base.shipped import find_preset, presets
from symbiont_ecology.ecology.learning import reward_rules
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.run.config import RunConfig, dump_config, load_config

MINIMAL = "tasks: {families: [math.add]}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source checkout of its own with three presets."""
    package = tmp_path / "src" / "symbiont_ecology"
    package.mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(shipped, "__file__", str(package / "base/shipped.py"))
    write(tmp_path / "config", "base", MINIMAL)
    config, demo = tmp_path / "config", "extends: [base, strategy/ecology]\nrun: {generations: 3}\n"
    ecology = "strategy: {kind: ecology, offspring: 4, tau: 3e-4}\n"
    write(config, "strategy/ecology", ecology)
    write(config, "experiments/demo", demo)
    return config


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_preset_is_composed_from_what_it_extends(folder: Path) -> None:
    config = load_config("demo")
    for name in (folder / "experiments/demo.yaml", "experiments/demo"):
        assert load_config(name) == config
    assert config.strategy == {"kind": "ecology", "offspring": 4, "tau": 3e-4}
    assert (config.run.generations, config.tasks.families) == (3, ("math.add",))
    assert config.economy == Prices()


def test_overrides_come_last_and_have_types(folder: Path) -> None:
    loop = "run.generations=7", "run.train_flops=2e15"
    words = "strategy.offspring=8", "tasks.depths=[long]", "allocator=thompson", "allocator.c=1e-2"
    config = load_config("demo", [*loop, *words, "learning_rule=none"])
    assert (config.run.generations, config.run.train_flops) == (7, 2e15)
    assert config.strategy == {"kind": "ecology", "offspring": 8, "tau": 3e-4}
    assert (config.tasks.depths, config.learning_rule) == (("long",), "none")
    assert config.allocator == {"kind": "thompson", "c": 0.01}


def test_a_file_extends_its_neighbours_before_presets(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "mine", "base", "extends: base\nseed: 5\n")  # its own name means the preset
    write(tmp_path / "mine", "other", "seed: 6\n")
    mine = write(
        tmp_path / "mine", "run", "extends: [base, ./other, strategy/ecology]\nhost: {rank: 2}\n"
    )
    config = load_config(mine)
    assert (config.seed, config.host.rank, config.tasks.families) == (6, 2, ("math.add",))


WRONG_OVERRIDES = {
    "run.generation=3": "unknown key 'run.generation'; did you mean 'run.generations'? known keys:",
    "run.generations=abc": "run.generations: expected a valid integer, got 'abc'",
    "run.generations=-1": "run.generations: expected greater than or equal to 0",
    "seed.x=3": "seed: expected a valid integer, got {'x': 3}",
    "strategy=3": "strategy: expected a valid string or keys with values, got 3",
    "tasks.depths=[3]": "tasks.depths.0: expected a valid string, got 3",
    "tasks.depths=[long, long]": "tasks.depths: expected one name or more, each of them once",
    "tasks.families=[]": "tasks.families: expected",
    "tasks.families=[{name: 3}]": "tasks.families.0: expected a valid string, got 3",
    "tasks.sources=[3]": "tasks.sources.0: expected",
    "tasks.arrivals=[5, 5]": "tasks.arrivals: expected numbers above 0 that rise, got [5.0,",
    "tasks.flip={families: [math.add], at_flops: 5, back_flops: 3}": "expected back_flops above 5",
    "host.dtype=int4": "host.dtype: expected 'float32', 'bfloat16', 'float16' or 'int8', got",
    "host.device=cuda:x": "host.device: expected String should match pattern '^(cpu|cuda|mps",
    "economy.rollout=0": "economy.rollout: expected greater than 0, got 0",
    "run..generations=3": "expected key.subkey=value",
    "seed=[1": "override 'seed=[1': not valid YAML",
    "host.model=${oc.env:HOME}": "'${' is refused",
    "seed=1\nhost: 2": "expected one value",
}
WRONG_FILES = {
    "seed: 1\n": "missing key 'tasks.families'",
    "seed: 1\nseed: 2\n": "found duplicate key seed",
    "a: !!python/object/apply:os.system ['true']\n": "not valid YAML",
    "- 1\n": "expected keys with values, got [1]",
    "extends: {a: 1}\n": "extends: expected a list of names",
    "extends: bsae\n": "no preset or file 'bsae'; did you mean 'base'? known: base, exp",
    "extends: [../mine/gone.yaml]\n": "no config file",
    "extends: other.yaml\n": "extends itself: run.yaml -> other.yaml -> run.yaml",
    "extends: ..\n": "expected a preset or a YAML file, got the folder",
    "# \udce4\n": "cannot be read (expected text in UTF-8, got ",
}


@pytest.mark.parametrize("wrong", [*WRONG_OVERRIDES, *WRONG_FILES])
def test_what_is_wrong_is_one_clear_line(folder: Path, tmp_path: Path, wrong: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/other.yaml").write_text("extends: run.yaml\n")
    path = tmp_path / "mine/run.yaml"
    path.write_text(wrong, errors="surrogateescape")
    with pytest.raises(ConfigError) as caught:
        load_config(*((path,) if wrong in WRONG_FILES else ("demo", [wrong])))
    assert (WRONG_OVERRIDES | WRONG_FILES)[wrong] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_presets_are_found_by_name_or_refused(folder: Path, tmp_path: Path) -> None:
    assert list(presets()) == ["base", "experiments/demo", "strategy/ecology"]
    for name in ("ecology", "strategy/ecology"):
        assert find_preset(name) == folder / "strategy/ecology.yaml"
    with pytest.raises(ConfigError, match="no preset or file 'dmeo'; did you mean 'demo'"):
        load_config("dmeo")
    with pytest.raises(ConfigError, match=r"no config file .*bsae.yaml'; did you mean 'base.yaml'"):
        load_config(folder / "bsae.yaml")
    write(folder, "tasks/demo", "")
    with pytest.raises(ConfigError, match="'demo' may be any of experiments/demo, tasks/demo"):
        find_preset("demo")


@pytest.mark.parametrize("name", presets())
def test_every_preset_with_tasks_is_a_whole_config(name: str) -> None:
    if "families" in find_preset(name).read_text():
        load_config(name)


NUMBER = st.integers() | st.floats(allow_nan=False)
LEAF = st.none() | st.booleans() | NUMBER | st.lists(st.integers(), max_size=2)
VALUE = st.recursive(
    LEAF, lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
)
DATA = st.dictionaries(st.sampled_from("abcd"), VALUE, max_size=3)


def leaves(data: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if isinstance(data, dict) and data:
        return {
            key: leaf for name in data for key, leaf in leaves(data[name], (*path, name)).items()
        }
    return {path: data}


@given(DATA, DATA)
def test_merging_keeps_every_leaf_and_lets_the_later_one_win(
    base: dict[str, Any], update: dict[str, Any]
) -> None:
    before = leaves(base), leaves(update)
    merged = leaves(merge(base, update))
    assert (leaves(base), leaves(update)) == before  # pure
    for path, leaf in leaves(update).items():
        assert leaf == {} or merged[path] == leaf
    for path, leaf in leaves(base).items():
        untouched = not any(
            path[: len(key)] == key or key[: len(path)] == path for key in leaves(update)
        )
        assert not untouched or merged[path] == leaf
    assert merge(base, base) == merge(base, {}) == merge({}, base) == base


def test_a_change_of_kind_drops_the_fields_of_the_old_kind() -> None:
    base = {"strategy": {"kind": "ecology", "offspring": 8}}
    assert merge(base, {"strategy": "frozen"}) == {"strategy": "frozen"}
    assert merge(base, {"strategy": {"kind": "es", "sigma": 1}}) == {
        "strategy": {"kind": "es", "sigma": 1}
    }
    assert merge(base, {"strategy": "ecology"}) == base
    named = merge({"strategy": "ecology"}, {"strategy": {"offspring": 8}})
    assert named == base


FLOAT = st.floats(min_value=1e-300, max_value=1e300)
FIELDS = st.dictionaries(st.text(), st.integers() | FLOAT | st.text() | st.none(), max_size=3)
SPEC = st.text() | FIELDS.map(lambda spec: {"kind": "x", **spec})


@settings(max_examples=40, deadline=None)
@given(st.integers(-(10**9), 10**9), SPEC, FLOAT, st.text())
def test_what_is_dumped_is_loaded_back(
    tmp_path_factory: Any, seed: int, spec: Any, flops: float, text: str
) -> None:
    path = tmp_path_factory.mktemp("dump") / "config.yaml"
    data = {"seed": seed, "tasks": {"families": ["a"]}, "strategy": spec}
    data |= {"run": {"train_flops": flops}, "host": {"model": text}}
    config = validate(RunConfig, data, "test")
    dumped = dump_config(config)
    path.write_text(dumped, encoding="utf-8")
    if "${" in dumped or "???" in dumped:
        return
    assert load_config(path) == config
    assert dump_config(load_config(path)) == dumped


def test_a_key_is_read_under_its_old_name(folder: Path) -> None:
    old = load_config("demo", ["plasticity={kind: hebbian, decay: 0.5}"])
    assert old == load_config("demo", ["learning_rule={kind: hebbian, decay: 0.5}"])
    assert old.learning_rule == {"kind": "hebbian", "decay": 0.5}
    assert "plasticity" not in dump_config(old)


def test_keys_that_are_gone_are_read_as_they_usually_were_and_refused_with_advice_if_not(
    folder: Path,
) -> None:
    climate = "climate: {catastrophes: [], toll: 0.5, year: 0, winter: 0.5}\n"
    old = climate + dump_config(load_config("demo")).replace("run:\n", "run:\n  mirror: null\n")
    old = old.replace("host:\n", "host:\n  is_checkpointing: false\n")
    assert load_config(write(folder, "old", old)) == load_config("demo")
    for override in ("run.mirror=s3://bucket/run", "run.train_rollouts=5", "climate.year=20"):
        with pytest.raises(ConfigError, match="is gone"):
            load_config("demo", [override])
    with pytest.raises(ConfigError, match="is gone"):
        reward_rules.build("human")


SOURCE = {"kind": "file", "name": "trivia", "path": "trivia.jsonl"}


def test_mappings_among_the_families_are_described_under_sources(folder: Path) -> None:
    override = "tasks.families=[math.add, {kind: file, path: trivia.jsonl, name: trivia}]"
    config = load_config("demo", [override])
    assert config.tasks.families == ("math.add", "trivia")
    assert config.tasks.sources == (SOURCE,)
    again = write(folder, "again", dump_config(config))
    assert load_config(again) == config
    assert dump_config(load_config(again)) == dump_config(config)
    assert load_config(again, ["tasks.families=[math.add]"]).tasks.sources == ()
    assert load_config(again, ["tasks.families=[trivia]"]).tasks.sources == (SOURCE,)
    assert load_config(
        "demo", ["tasks.families=[trivia]", f"tasks.sources=[{SOURCE}]"]
    ).tasks.sources


@pytest.mark.parametrize("strategy", strategies.names())
def test_a_host_brings_its_learning_rate_to_every_strategy_that_learns(strategy: str) -> None:
    config = load_config("base", ["host=smollm2", f"strategy={strategy}"])
    rate = getattr(strategies.build(config.strategy), "learning_rate", None)
    assert rate in (None, 0.001)
    said = [f"strategy={{kind: {strategy}, learning_rate: 0.25}}"]
    if rate:
        config = load_config("base", [*said, "host=smollm2"])
        assert config.strategy == {"kind": strategy, "learning_rate": 0.25}
    assert load_config("base", said) == load_config("base", ["host.learning_rate=2", *said])
