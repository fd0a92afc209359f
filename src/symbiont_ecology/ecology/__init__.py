"""The living part: organelles, trials, archive, decisions and how they are carried out, state."""

from symbiont_ecology.ecology.archive import Archive, Elite, cell_name
from symbiont_ecology.ecology.decisions import (
    Birth,
    Decision,
    Found,
    Inheritance,
    Judge,
    KeepSelf,
    ProposeChild,
    ProposeFormerSelf,
    ProposeVariant,
    Resize,
    Retire,
    Upheaval,
)
from symbiont_ecology.ecology.drift import DriftDetector, drift_score
from symbiont_ecology.ecology.gate import Challenger, Gate, GateDecision, PairedCounts
from symbiont_ecology.ecology.organelle import (
    HOST,
    RULE,
    FormerSelf,
    Genome,
    Organelle,
    SuccessPosterior,
    skill,
)
from symbiont_ecology.ecology.rollout import Assignment, Outcome, Rollout, practice_of
from symbiont_ecology.ecology.state import EcologyState
