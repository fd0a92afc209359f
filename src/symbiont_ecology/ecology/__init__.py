"""The living part: organelles, users and their clusters, success, decisions, state.

Read first: ``state`` (all that changes), ``users`` (what is remembered of each), ``clusters``
(which users want the same), ``strategies`` (who decides), ``decisions`` (births, deaths),
``ledger``.
"""

from symbiont_ecology.ecology.decisions import (
    Awaken,
    Birth,
    Decision,
    DriftResponse,
    Found,
    Inheritance,
    Merge,
    Resize,
    Retire,
    Serve,
)
from symbiont_ecology.ecology.gate import Gate, PairedCounts, Trial
from symbiont_ecology.ecology.organelle import DROPOUT, HOST, Genome, Organelle
from symbiont_ecology.ecology.rollout import Assignment, Outcome, Rollout, map_rollouts, practice_of
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.ecology.success import (
    Archive,
    DriftDetector,
    Elite,
    SuccessPosterior,
    drift_score,
)
from symbiont_ecology.ecology.users import RememberedAnswer, User
