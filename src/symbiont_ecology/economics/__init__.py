"""The physics of energy and compute: ledger, prices, FLOP formulas, cost."""

from symbiont_ecology.economics.cost import Cost
from symbiont_ecology.economics.flops import (
    ROLLOUT_WITH_LESSON,
    executed_flops,
    forward_flops,
    learning_flops,
    rollout_flops,
    scoring_flops,
    tracing_flops,
)
from symbiont_ecology.economics.ledger import Ledger, LedgerError
from symbiont_ecology.economics.prices import Prices
from symbiont_ecology.economics.shape import HostShape
