"""The living part: organelles, trials, archive, decisions and how they are carried out, state."""

from symbiont_ecology.ecology.archive import Archive, Elite, cell_name
from symbiont_ecology.ecology.decisions import Birth, Decision, Found, Retire
from symbiont_ecology.ecology.organelle import HOST, Genome, Organelle
from symbiont_ecology.ecology.state import Belief, EcologyState
from symbiont_ecology.ecology.trials import Outcome, Trial
from symbiont_ecology.ecology.watch import Watch, alarm

__all__ = [
    "HOST",
    "Archive",
    "Belief",
    "Birth",
    "Decision",
    "EcologyState",
    "Elite",
    "Found",
    "Genome",
    "Organelle",
    "Outcome",
    "Retire",
    "Trial",
    "Watch",
    "alarm",
    "cell_name",
]
