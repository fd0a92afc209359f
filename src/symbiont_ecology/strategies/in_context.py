"""The control without adapters of one's own: users' accepted answers stand in the prompt.

What a user wants can be shown instead of learned (in-context learning, Brown et al. 2020,
arXiv:2005.14165). Nothing has to be kept for a user but a few answers, and every question costs the
tokens of its examples again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import PositiveInt

from symbiont_ecology.ecology import EcologyState, Habitat
from symbiont_ecology.strategies import StrategyContext, strategies
from symbiont_ecology.strategies.controls import Single
from symbiont_ecology.types import Item, in_turns, last_turn, turns

LEADS_OVER = ("\n", " ")
"""How a prompt ends behind which the answer stands as text. In a chat the template leads over."""


@strategies.register("in_context")
@dataclass(frozen=True)
class InContext(Single):
    """One organelle is asked, behind the last answers that the user accepted: turns of a chat, or
    lines of text.

    With ``learning_rule: none`` that is all. With another rule it also learns to go by what it is
    shown.
    """

    examples: PositiveInt = 3  # most accepted answers in front of a question
    needs_habitats: ClassVar[bool] = True
    service_fault: ClassVar[str] = "it puts examples in front of questions, and a service does not"

    def items(self, context: StrategyContext) -> tuple[Item, ...]:
        """This generation's questions, each behind its examples."""
        return tuple(self._behind_examples(item, context.state) for item in super().items(context))

    def _behind_examples(self, item: Item, state: EcologyState) -> Item:
        accepted = state.habitats.get(item.habitat, Habitat()).accepted[-self.examples :]
        is_text = item.prompt.endswith(LEADS_OVER)
        examples = [
            part
            for a in accepted
            for part in (last_turn(a.prompt), f"{a.reply}\n" if is_text else a.reply)
        ]
        *before, question = turns(item.prompt)  # what the system says stays in front
        return replace(item, prompt=in_turns(*before, *examples, question))
