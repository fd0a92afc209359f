"""The living part: organelles, trials, archive, decisions and how they are carried out, state."""

from symbiont_ecology.ecology.archive import Archive, Elite, cell_name
from symbiont_ecology.ecology.challengers import Challenger
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
from symbiont_ecology.ecology.gate import Gate, GateDecision, PairedCounts
from symbiont_ecology.ecology.organelle import HOST, RULE, FormerSelf, Genome, Organelle, skill
from symbiont_ecology.ecology.posterior import SuccessPosterior
from symbiont_ecology.ecology.rollout import Assignment, Outcome, Purpose, Rollout
from symbiont_ecology.ecology.state import EcologyState

__all__ = [
    "HOST",
    "RULE",
    "Archive",
    "Assignment",
    "Birth",
    "Challenger",
    "Decision",
    "DriftDetector",
    "EcologyState",
    "Elite",
    "FormerSelf",
    "Found",
    "Gate",
    "GateDecision",
    "Genome",
    "Inheritance",
    "Judge",
    "KeepSelf",
    "Organelle",
    "Outcome",
    "PairedCounts",
    "ProposeChild",
    "ProposeFormerSelf",
    "ProposeVariant",
    "Purpose",
    "Resize",
    "Retire",
    "Rollout",
    "SuccessPosterior",
    "Upheaval",
    "cell_name",
    "drift_score",
    "skill",
]
