"""The first food of a newborn: it learns what its habitats accepted before it answers anything."""

from symbiont_ecology.engine.learn import learn_answers
from symbiont_ecology.engine.news import with_news
from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.engine.settle import install
from symbiont_ecology.events import Event
from symbiont_ecology.types import OrganelleId

MEAL = 24
"""Most answers in one meal."""


def feed(organelle_id: OrganelleId, meals: int, turn: Turn) -> list[Event]:
    """So many steps on the remembered answers of its habitats, each on some of them by draw.

    The world pays, as it pays the dowry; the compute counts.
    """
    state, events = turn.state, list[Event]()
    answers = [answer for server, answer in state.accepted_answers() if server == organelle_id]
    what = f"first food of {organelle_id}"
    for meal in with_news(range(meals if answers else 0), what, turn.tell):
        order = turn.draw("meal", organelle_id, meal).permutation(len(answers))[:MEAL]
        update = learn_answers(organelle_id, [answers[place] for place in order], turn)
        events += [update.learned, *install([update], state)]
        if update.is_sick:
            break
    return events
