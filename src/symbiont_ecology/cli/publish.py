"""``publish``: an adapter with its model card, ready for a hub; sent there only with ``--push``."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.cli.console import asking, open_run, prepare, typed_with, write_json
from symbiont_ecology.cli.options import HostOption, PerCellOption, RunFolder, argument, option
from symbiont_ecology.errors import ConfigError, MissingExtraError, RunError
from symbiont_ecology.registry import did_you_mean

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from symbiont_ecology import Run
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.evaluation.adapter_comparison import AdapterComparison
    from symbiont_ecology.run import LivingOrganelle
    from symbiont_ecology.types import Item

CARD_FILE, RUN_CONFIG_FILE, MEASURED_FILE = "README.md", "config.yaml", "measured.json"
FILE_KEYS = ("path", "data", "final_holdout", "plugins", "adapters")
"""Keys of a config under which files and folders stand, which need not be here any more."""
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def publish(
    folder: RunFolder,
    repository: Annotated[str, argument("Repository on the hub.", metavar="OWNER/NAME")],
    organelle: Annotated[
        str | None, option("Whose adapter is published.", default="the best one's")
    ] = None,
    holdout: Annotated[
        Path | None,
        option(
            "JSONL file of questions to measure with.", default="the run's own holdout questions"
        ),
    ] = None,
    per_cell: PerCellOption = 20,
    base_model: Annotated[
        str | None, option("What the hub calls the host.", default="as the run's config does")
    ] = None,
    to: Annotated[
        Path | None, option("Folder to write to.", default="DIR/publish/<organelle>")
    ] = None,
    push: Annotated[bool, option("Send it. Without this nothing leaves the machine.")] = False,
    public: Annotated[bool, option("With --push: a new repository is open to all.")] = False,
    host: HostOption = None,
) -> None:
    """Measure an adapter beside its bare host and write it with a model card, ready for a hub."""
    if not REPOSITORY.fullmatch(repository):
        raise ConfigError(f"publish: expected OWNER/NAME as the repository, got {repository!r}")
    if public and not push:
        raise ConfigError("publish --public: expected --push beside it, for nothing is sent")
    if push:
        _hub()  # before anything is measured
    run = open_run(folder, host)
    name = base_model or run.config.host.model
    if Path(name).exists() or Path(name).is_absolute():
        raise ConfigError(
            f"publish: the host is the folder {name}, which others do not have: expected "
            "--base-model OWNER/NAME"
        )
    living = _living(run, organelle)
    target = to or folder / "publish" / living.id
    files = _write(run, living, repository, name, target, holdout, per_cell)
    print((target / CARD_FILE).read_text(encoding="utf-8"))
    for file in files:
        print(f"{(target / file).stat().st_size:>10,} bytes  {target / file}")
    if push:
        print(f"sent: {_send(target, files, repository, is_private=not public)}")
    else:
        print(f"nothing was sent: {typed_with('--push')} sends it")


def _living(run: Run, organelle: str | None) -> LivingOrganelle:
    """Whose adapter it is.

    Raises:
        RunError: nobody of that name lives, or its adapter alone is not all of it.
    """
    if not run.population:
        raise RunError(f"{run.folder}: nobody is alive there: expected a run with organelles")
    living = run.best if organelle is None else run.population.get(organelle)
    if living is None:
        raise RunError(
            f"{run.folder}: expected somebody alive, got {organelle!r}:"
            f"{did_you_mean(str(organelle), run.population)} see symbiont export"
        )
    if living.weights.phrase:
        raise RunError(
            f"{living.id} is asked behind the phrase {living.weights.phrase!r}, for which a PEFT "
            "folder has no place: expected an organelle without one"
        )
    return living


def _write(
    run: Run,
    living: LivingOrganelle,
    repository: str,
    base_model: str,
    target: Path,
    holdout: Path | None,
    per_cell: int,
) -> list[str]:
    """Writes everything that goes to the hub; returns the names of the files."""
    from symbiont_ecology.analysis.model_card import AdapterOrigin, publication_card
    from symbiont_ecology.config import dump_config
    from symbiont_ecology.engine.provenance import check_host
    from symbiont_ecology.export import asked_how
    from symbiont_ecology.files import write_whole
    from symbiont_ecology.weights.peft_files import PEFT_CONFIG_FILE, WEIGHTS_FILE

    check_host(run.folder, run.host)
    prepare(target / CARD_FILE)
    kernel, config, born = run.kernel, run.config, living.organelle
    items, data = _questions(run, living, holdout, per_cell)
    kernel.place(0, living.weights)
    kernel.export(0, target, base_model=base_model)
    comparison = _measured(run, target, items)
    origin = AdapterOrigin(
        repository,
        base_model,
        organelle=living.id,
        rank=born.genome.rank,
        born=born.born,
        operator=born.operator,
        parents=born.parents,
        seed=run.state.seed,
        generation=run.state.generation,
        users=len(living.habitats),
        asked=asked_how(config),
        data=data,
    )
    kernel.export(0, target, base_model=base_model, model_card=publication_card(origin, comparison))
    write_whole(target / RUN_CONFIG_FILE, dump_config(_for_all(config, base_model)))
    write_json(target / MEASURED_FILE, comparison.summary())
    return [CARD_FILE, PEFT_CONFIG_FILE, WEIGHTS_FILE, RUN_CONFIG_FILE, MEASURED_FILE]


def _for_all(config: RunConfig, base_model: str) -> RunConfig:
    """The config as others may read it: of files and folders their names alone, and no address."""
    host = config.host.model_copy(update={"model": base_model})
    values = config.model_copy(update={"host": host}).model_dump()
    return config.model_validate({key: _for_all_to_read(key, one) for key, one in values.items()})


def _for_all_to_read(key: str, value: object) -> object:
    """What stands under a key of a config, without what is private in it."""
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if not _is_address(name, one)}
        return {name: _for_all_to_read(name, one) for name, one in kept.items()}
    if isinstance(value, list | tuple):
        return [_for_all_to_read(key, one) for one in value]
    if not isinstance(value, str):
        return value
    is_place = key in FILE_KEYS or os.path.isabs(value) or os.path.exists(value)
    return Path(value).name if is_place else value


def _is_address(key: str, value: object) -> bool:
    return key == "address" or (isinstance(value, str) and "://" in value)


def _questions(
    run: Run, living: LivingOrganelle, holdout: Path | None, per_cell: int
) -> tuple[list[Item], str]:
    """What is asked, those who serve users the questions of these, and where it comes from."""
    from symbiont_ecology.analysis.page import code_cell
    from symbiont_ecology.evaluation.spec import EvaluationSpec

    if holdout is not None:
        spec = EvaluationSpec(holdout=str(holdout))
        ((_, digest),) = spec.files().items()
        source = f"a file of questions, {code_cell(holdout.name)}, hash `{digest}`"
        return spec.items(run.loaded), f"{source}; that nothing learned from them was not checked"
    shift = "habitats" if living.habitats else "in-distribution"
    items = EvaluationSpec(per_cell=per_cell, shifts=(shift,)).items(run.loaded)
    if not living.habitats:
        return items, "the run's holdout questions, from which no adapter learns"
    own_items = [item for item in items if item.habitat in living.habitats]
    return own_items, "holdout questions of the users that it serves, from which no adapter learns"


def _measured(run: Run, target: Path, items: list[Item]) -> AdapterComparison:
    """The adapter beside its bare host. The card names no folder of this machine."""
    from symbiont_ecology.evaluation.adapter_comparison import compare_with_host

    with asking() as progress:
        pair = compare_with_host(
            target, items, run.kernel, progress=progress, stops=run.loaded.stops
        )
    bare, adapter = (replace(side, source=target.name) for side in (pair.host, pair.adapter))
    return replace(pair, host=bare, adapter=adapter)


def _hub() -> HfApi:
    """The client of the hub.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise MissingExtraError("publish --push", "huggingface_hub", "hub") from error
    return HfApi(library_name="symbiont-ecology")


def _failures() -> tuple[type[Exception], ...]:
    """What the client of the hub raises: it asks with httpx up to its version 1, then httpx2."""
    from huggingface_hub.errors import HfHubHTTPError

    root = next(kind for kind in HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError")
    return (root, OSError, ValueError)


def _send(target: Path, files: list[str], repository: str, *, is_private: bool) -> str:
    """Sends the files, and nothing else that may lie in the folder; returns where they are.

    Raises:
        RunError: the hub refuses, or cannot be reached.
    """
    hub, failures = _hub(), _failures()
    try:
        place = hub.create_repo(repository, private=is_private, exist_ok=True)
        hub.upload_folder(
            repo_id=repository,
            folder_path=target,
            allow_patterns=files,
            commit_message="An adapter of symbiont-ecology",
        )
    except failures as error:
        raise RunError(
            f"publish --push: the hub did not take {repository}: {error}: is a token there (hf "
            "auth login), and may it write?"
        ) from error
    return str(place)
