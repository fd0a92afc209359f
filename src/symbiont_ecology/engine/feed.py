"""The first food of newborns: they learn what their habitats accepted before they answer anything.

All newborns of a generation learn in one batch.
"""

from collections import defaultdict
from collections.abc import Mapping

from symbiont_ecology.ecology import RememberedAnswer
from symbiont_ecology.engine.learn import learn_answers
from symbiont_ecology.engine.news import with_news
from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.engine.settle import install
from symbiont_ecology.events import Event
from symbiont_ecology.types import OrganelleId

MEAL = 24
"""Most answers in one meal."""


def feed(meals: Mapping[OrganelleId, int], turn: Turn) -> list[Event]:
    """So many steps for each newborn on the remembered answers of its habitats, each step on some
    of them by draw.

    The world pays, as it pays the dowry; the compute counts.
    """
    food: dict[OrganelleId, list[RememberedAnswer]] = defaultdict(list)
    for server, answer in turn.state.accepted_answers() if meals else ():
        if server in meals:
            food[server].append(answer)
    events, steps = list[Event](), range(max(map(meals.__getitem__, food), default=0))
    for meal in with_news(steps, "first food of newborns", turn.tell):
        portions = {}
        for name, answers in food.items():
            if name in turn.state.population and meal < meals[name]:  # one that fell sick is gone
                order = turn.draw("meal", name, meal).permutation(len(answers))[:MEAL]
                portions[name] = [answers[place] for place in order]
        updates = learn_answers(portions, turn)
        events += [update.learned for update in updates]
        events += install(updates, turn.state)
    return events
