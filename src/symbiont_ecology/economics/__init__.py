"""The physics of energy and compute: ledger, prices, FLOP formulas, cost."""

from symbiont_ecology.economics.flops import ROLLOUT_WITH_LESSON, Cost, HostShape
from symbiont_ecology.economics.ledger import Ledger, LedgerError
from symbiont_ecology.economics.prices import Prices
