"""The living part: organelles, trials, archive, decisions and how they are carried out, state."""

from symbiont_ecology.ecology.archive import Archive, Elite, cell_name
from symbiont_ecology.ecology.belief import Belief
from symbiont_ecology.ecology.decisions import (
    Birth,
    Decision,
    Found,
    Inheritance,
    Note,
    Probation,
    Propose,
    Recall,
    Resize,
    Retire,
    Upheaval,
)
from symbiont_ecology.ecology.gate import Gate, Tally, Verdict
from symbiont_ecology.ecology.nursery import Candidate
from symbiont_ecology.ecology.organelle import HOST, RULE, Former, Genome, Organelle, skill
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.ecology.trials import Outcome, Trial
from symbiont_ecology.ecology.watch import Watch, alarm

__all__ = [
    "HOST",
    "RULE",
    "Archive",
    "Belief",
    "Birth",
    "Candidate",
    "Decision",
    "EcologyState",
    "Elite",
    "Former",
    "Found",
    "Gate",
    "Genome",
    "Inheritance",
    "Note",
    "Organelle",
    "Outcome",
    "Probation",
    "Propose",
    "Recall",
    "Resize",
    "Retire",
    "Tally",
    "Trial",
    "Upheaval",
    "Verdict",
    "Watch",
    "alarm",
    "cell_name",
    "skill",
]
