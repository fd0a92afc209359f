"""Hyper-parameters proposed by a tree-structured Parzen estimator: the peer of their evolution.

Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization"; the implementation is optuna's
(Akiba et al. 2019, arXiv:1907.10902). Trainings and exams are those of ``hyper``. What was scored
stays alive, so the state holds all that the estimator knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symbiont_ecology.ecology import Decision
from symbiont_ecology.errors import MissingExtraError
from symbiont_ecology.learning import LearningRule
from symbiont_ecology.strategies import StrategyContext, strategies
from symbiont_ecology.strategies.hyper import Hyper
from symbiont_ecology.types import OrganelleId

if TYPE_CHECKING:
    from types import ModuleType


@strategies.register("tpe")
@dataclass(frozen=True)
class ParzenEstimator(Hyper):
    """Each life tries what the estimator expects most of, given all lives before. The genetic knobs
    of ``hyper`` (elite, mutation, crossover) do nothing here."""

    def check(self, rank: int, rule: LearningRule) -> None:
        """A missing package shows before a host is loaded."""
        super().check(rank, rule)
        _optuna()

    def next_life(
        self, scores: Mapping[OrganelleId, float], context: StrategyContext
    ) -> list[Decision]:
        """As many proposals as places; each counts as tried while the next is drawn."""
        optuna, living = _optuna(), context.state.population
        options = {
            name: optuna.distributions.CategoricalDistribution(values)
            for name, values in self.space.items()
        }
        seed = int(context.draw("sampler").integers(1 << 32))
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for name, score in scores.items():
            genes = {gene: living[name].genome.traits[gene] for gene in options}
            trial = optuna.trial.create_trial(params=genes, distributions=options, value=score)
            study.add_trial(trial)
        proposals = [study.ask(options).params for _ in range(self.population)]
        return [
            self.variant({gene: float(value) for gene, value in genes.items()}, "estimator")
            for genes in proposals
        ]


def _optuna() -> ModuleType:
    """The package, without its log.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("strategy tpe", "optuna", "tuning") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
