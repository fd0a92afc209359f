"""A run as an object: start it, live it generation by generation, ask it, look at it, keep it.

    run = Run.start("demo", "seed=1", "run.generations=20")
    for generation in run:
        print(generation.summary.accuracy)
    print(run.ask("math.add: 47+8").text)
    run.best.save_peft("my-adapter")

Everything is in the run's folder; ``Run.open`` comes back to it at any time.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.config_layers import config_name
from symbiont_ecology.base.errors import ConfigError, DataError, HostError, RunError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Event
from symbiont_ecology.base.files import free_folder, stamp_of
from symbiont_ecology.base.names import user_name
from symbiont_ecology.base.registry import did_you_mean, kind_of
from symbiont_ecology.base.types import OrganelleId, is_text
from symbiont_ecology.ecology import EcologyState, Organelle, Rollout
from symbiont_ecology.ecology.state import STATE_FILE, load_state
from symbiont_ecology.run.budget import is_complete
from symbiont_ecology.run.build import build_host, check, host_source
from symbiont_ecology.run.config import LoopConfig, RunConfig, load_config
from symbiont_ecology.run.executors import NOT_DECIDING
from symbiont_ecology.run.open_run import (
    EVENTS_FILE,
    JOURNAL_FILE,
    Generation,
    check_free,
    lived_seconds,
    opened,
    read_config,
)
from symbiont_ecology.run.provenance import check_data
from symbiont_ecology.run.runtime import Host

if TYPE_CHECKING:
    import pandas as pd

    from symbiont_ecology.evaluate.measure import Evaluation, LoadedRun
    from symbiont_ecology.evaluate.routings import Spec
    from symbiont_ecology.model.kernel import HostKernel

EXTENDABLE = (
    *(f"run.{name}" for name in LoopConfig.model_fields),
    "host.engine.url",
    *NOT_DECIDING,
)
"""Keys that may change when a run is resumed: when it ends, how often it is saved, what reports it,
what it is asked at the end, who does its work and where."""


class Run:
    """A run and its folder. Make one with ``start`` or ``open``.

    Iterating loads the host and lives the run, from its last checkpoint or from its founding: each
    step is one generation, and leaving the loop early leaves a checkpoint. Until the loop is left
    no other process can write to the folder. The host is loaded when it is first needed, and kept.
    """

    def __init__(self, folder: Path, config: RunConfig, host: Host | None = None) -> None:
        self.folder, self.config = folder, config
        if host is not None:
            self.host = host
        # What was read of the folder last, until the files are others.
        self._state_at = lru_cache(maxsize=1)(lambda stamp: load_state(folder))
        self._loaded_at = lru_cache(maxsize=1)(lambda stamp: self._load())
        self._events_at = lru_cache(maxsize=1)(lambda stamp: EventTables(folder / EVENTS_FILE))

    @classmethod
    def start(
        cls,
        config: str | Path | RunConfig,
        *overrides: str,
        folder: str | Path | None = None,
        host: Host | None = None,
    ) -> Run:
        """Make a new run from a preset, a YAML file or a config; nothing is lived yet.

        Args:
            config: ``"demo"``, ``"mine.yaml"`` or a ``RunConfig``.
            overrides: changes such as ``"seed=1"``.
            folder: where the run lives; ``artifacts/<config>-<n>`` if it is left out.
            host: a host that is loaded already.

        Raises:
            ConfigError: the config does not fit together, or overrides come with a config that is
                built already.
            RunError: the folder holds a run already.
        """
        if isinstance(config, RunConfig) and overrides:
            raise ConfigError(f"this config is built already: pass {overrides[0]!r} to load_config")
        name = "run"
        if not isinstance(config, RunConfig):
            name, config = config_name(config), load_config(config, overrides)
        place = free_folder(name) if folder is None else Path(folder)
        check(config, is_new=True)
        check_free(place)
        return cls(place, config, host)

    @classmethod
    def open(cls, folder: str | Path, *overrides: str, host: Host | None = None) -> Run:
        """Open a run that exists. One that died before its first checkpoint begins again.

        Overrides may make it longer or shorter (``run.generations=50``), are kept in its config,
        and can change what is not part of its results: ``EXTENDABLE`` has the keys. A run that had
        more generations added equals one that was meant to have them. One that had spent its budget
        does not: its last generation asked no more than that paid.

        Raises:
            ConfigError: an override of another key, or of the wrong type.
            RunError: no run in the folder, its files are damaged, or its data are not what they
                were.
        """
        for override in overrides:
            if override.partition("=")[0].strip() not in EXTENDABLE:
                raise ConfigError(
                    f"override {override!r}: a run that exists can only change "
                    f"{', '.join(EXTENDABLE)}; start a new run for anything else"
                )
        place = Path(folder)
        config = read_config(place, overrides)
        if is_new := not (place / STATE_FILE).exists():
            check_free(place)
        check(config, is_new=is_new)
        check_data(config, place)
        return cls(place, config, host)

    def __iter__(self) -> Generator[Generation, None, None]:
        is_new = not self.is_started  # before the host is loaded: another process may be faster
        return self._generations(is_new, self.host)

    def _generations(self, is_new: bool, host: Host) -> Generator[Generation, None, None]:
        if os.path.exists(self.folder / JOURNAL_FILE):
            raise RunError(f"{self.folder} is in service: go on with symbiont serve {self.folder}")
        with opened(self.config, self.folder, host, is_new=is_new) as run:
            while not run.is_complete:
                generation = run.step()
                try:
                    yield generation
                except GeneratorExit:
                    run.save()
                    raise

    def __repr__(self) -> str:
        if not self.is_started:
            return f"<Run {self.folder}: not started>"
        state, alive = self.state, len(self.population)
        facts = f"generation {state.generation}, {alive} alive, {state.spent.flops:.3g} FLOPs"
        return f"<Run {self.folder}: {facts}>"

    def finish(self, should_stop: Callable[[], bool] = lambda: False) -> Run:
        """Live the run to its end, or to the end of a generation after which it should stop."""
        with closing(iter(self)) as generations:
            for _ in generations:
                if should_stop():
                    break
        return self

    @cached_property
    def host(self) -> Host:
        """The frozen model, loaded when it is first needed."""
        return build_host(self.config)

    @cached_property
    def kernel(self) -> HostKernel:
        """The host in this process, if its adapters can be written as PEFT folders.

        Raises:
            HostError: it is no language model.
        """
        from symbiont_ecology.model.kernel import HostKernel

        is_here = kind_of(self.config.executor) == "local"
        kernel = self.host if is_here else host_source(self.config).load()
        if not isinstance(kernel, HostKernel):
            raise HostError("only adapters of a language model can be written as PEFT folders")
        return kernel

    @property
    def is_started(self) -> bool:
        """True once there is a first checkpoint."""
        return os.path.exists(self.folder / STATE_FILE)  # no error where a name is too long

    @property
    def is_complete(self) -> bool:
        """True once the run has had its generations or spent its budget."""
        if not self.is_started:
            return False
        seconds = lived_seconds(self.folder, self.state.generation)
        return is_complete(self.config, self.state, seconds)

    @property
    def state(self) -> EcologyState:
        """The last checkpoint, read anew when there is another: only for reading.

        Raises:
            RunError: there is none yet.
        """
        return self._state_at(stamp_of(self.folder / STATE_FILE))

    @property
    def population(self) -> Population:
        """Living organelles at the last checkpoint, by id."""
        state = self.state
        return Population(
            (organelle_id, LivingOrganelle(self, organelle, state))
            for organelle_id, organelle in state.population.items()
        )

    @property
    def events(self) -> EventTables:
        """The event log: a pandas frame for every kind of event, such as ``run.events.Born``."""
        return self._events_at(stamp_of(self.folder / EVENTS_FILE))

    @property
    def loaded(self) -> LoadedRun:
        """The run at its last checkpoint, with everyone who can be asked."""
        return self._loaded_at(stamp_of(self.folder / STATE_FILE))

    def _load(self) -> LoadedRun:
        from symbiont_ecology.evaluate.measure import LoadedRun

        return LoadedRun.of_run(self.folder)

    @property
    def best(self) -> LivingOrganelle:
        """The living organelle with the highest success over all cells; where some serve users, one
        of these.

        Raises:
            RunError: nobody is alive.
        """
        pool = self.loaded.pool
        if not (population := pool.state.population):
            raise RunError(f"nobody is alive in {self.folder}: let it go on, or start it anew")
        return LivingOrganelle(self, population[pool.best(pool.state.served)], pool.state)

    def ask(
        self, prompt: str, routing: Spec | None = None, max_new_tokens: int = 64, user: str = ""
    ) -> Rollout:
        """Return the answer to a prompt, by whom the routing chooses (``symbiont list routings``):
        without one, by the organelle that serves the ``user``, or by the router if no user is
        named.

        Raises:
            DataError: the prompt cannot be written in UTF-8.
            RunError: the run does not know the user.
        """
        if not is_text(prompt):
            raise DataError("expected a prompt in UTF-8, got bytes that are none")
        users = self.state.users
        if user and user not in users:
            with suppress(ValueError):  # which no user is called
                user = user_name(user)
        if user and user not in users:
            hint, known = did_you_mean(user, users), ", ".join(users)
            raise RunError(
                f"{self.folder} knows no user {user!r};{hint} it has {len(users)}: {known:.80}"
            )
        routing = routing or ("user" if user else "learned")
        return self.loaded.answer(prompt, self.host, routing, max_new_tokens, user)

    def evaluate(
        self, per_cell: int = 20, shift: str = "in-distribution", routing: str = "learned"
    ) -> Evaluation:
        """Return the accuracy on holdout items of its own tasks (``symbiont list shifts``)."""
        run = self.loaded
        return run.evaluate(run.items(per_cell, (shift,)), self.host, routing)

    def evaluate_final_holdout(self) -> Evaluation | None:
        """Answer ``run.final_holdout`` with the run's router, and log it; return None if
        there is no such file."""
        from symbiont_ecology.evaluate.evaluation_log import EvaluationSpec, log_evaluation

        if (holdout := self.config.run.final_holdout) is None:
            return None
        samples = self.config.run.final_holdout_samples
        run, spec = self.loaded, EvaluationSpec(holdout=Path(holdout), most_asked=samples)
        evaluation = run.evaluate(spec.items(run), self.host)
        log_evaluation(evaluation, run, spec)
        return evaluation


@dataclass(frozen=True)
class LivingOrganelle:
    """An organelle of a run at its last checkpoint."""

    run: Run
    organelle: Organelle
    state: EcologyState

    @property
    def users(self) -> list[str]:
        """Users that it serves."""
        return self.state.served.get(self.id, [])

    @property
    def id(self) -> OrganelleId:
        """Its name, such as ``o3``."""
        return self.organelle.id

    @property
    def age(self) -> int:
        """Age in generations."""
        return self.state.generation - self.organelle.born

    @property
    def balance(self) -> float:
        """Energy in ATP."""
        return self.state.ledger.balance(self.id) / 1000

    @property
    def success(self) -> Mapping[str, float]:
        """Posterior mean success rate by cell, the highest first."""
        posteriors = self.state.posteriors.get(self.id, {})
        rates = {cell: posterior.mean for cell, posterior in posteriors.items()}
        return dict(sorted(rates.items(), key=lambda entry: -entry[1]))

    def __repr__(self) -> str:
        rank = self.organelle.genome.rank
        best = next(iter(self.success.items()), None)
        skill = "" if best is None else f", best at {best[0]} ({best[1]:.0%})"
        return f"<{self.id}: age {self.age}, {self.balance:.0f} ATP, rank {rank}{skill}>"

    @property
    def weights(self) -> AdapterWeights:
        """Its adapter."""
        return BlobStore(self.run.folder / "blobs").weights(self.organelle.genome.weights)

    def save_peft(self, folder: str | Path, model_card: str = "") -> Path:
        """Write its adapter as a PEFT folder that ``PeftModel.from_pretrained`` loads."""
        kernel = self.run.kernel
        kernel.place(0, self.weights)
        kernel.export(0, folder, model_card=model_card)
        return Path(folder)


class Population(dict[OrganelleId, LivingOrganelle]):
    """The living organelles of a run by id."""

    def __repr__(self) -> str:
        listing = ", ".join(repr(organelle) for organelle in list(self.values())[:3])
        return f"<{len(self)} alive: {listing}{', …' if len(self) > 3 else ''}>"


class EventTables:
    """The event log of a run as pandas frames: one per kind, one row per event."""

    def __init__(self, path: Path) -> None:
        self._rows = defaultdict[str, list[dict[str, object]]](list)
        for event in read_events(path):
            self._rows[type(event).__name__].append(vars(event))

    def __getattr__(self, kind: str) -> pd.DataFrame:
        if kind not in Event.kinds:
            raise AttributeError(f"no kind of event {kind!r}; known: {', '.join(Event.kinds)}")
        import pandas as pd

        columns = [field.name for field in fields(Event.kinds[kind])]
        return pd.DataFrame(self._rows.get(kind, []), columns=columns)
