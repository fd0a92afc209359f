"""The living part: organelles, trials, archive, decisions and how they are carried out, state."""

from symbiont_ecology.ecology.archive import Archive, Elite
from symbiont_ecology.ecology.births import Awaken, Birth, Colonise, Found
from symbiont_ecology.ecology.changes import Resize, Serve, Upheaval
from symbiont_ecology.ecology.deaths import Retire
from symbiont_ecology.ecology.drift import DriftDetector, drift_score
from symbiont_ecology.ecology.gate import Challenger, Gate, GateDecision, PairedCounts
from symbiont_ecology.ecology.habitats import Habitat, RememberedAnswer
from symbiont_ecology.ecology.organelle import (
    DROPOUT,
    HOST,
    RULE,
    Genome,
    Organelle,
    SuccessPosterior,
)
from symbiont_ecology.ecology.population import Decision, Inheritance, apply
from symbiont_ecology.ecology.rollout import Assignment, Outcome, Rollout, map_rollouts, practice_of
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.ecology.trials import Judge, ProposeChild
