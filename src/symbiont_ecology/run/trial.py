"""The trial of a merged child: it answers the same fresh questions as its parents, until the gate
decides.

Nobody learns from them. The world pays for the answers; their compute counts as that of all others.
"""

from collections import defaultdict

from symbiont_ecology.base.events import Event
from symbiont_ecology.base.types import OrganelleId, cell_name
from symbiont_ecology.ecology import Assignment, Merge, PairedCounts, Trial
from symbiont_ecology.run.act import act
from symbiont_ecology.run.budget import affordable_assignments
from symbiont_ecology.run.runtime import GenerationContext
from symbiont_ecology.run.settle import acted


def hold_trial(child: OrganelleId, merge: Merge, context: GenerationContext) -> Trial:
    """Ask a child and its parents round by round, and return how it ended."""
    homes = {name for names in merge.cells.values() for name in names}
    cells = [cell for cell in context.tasks.cells if cell_name(cell) in homes]
    verdicts: dict[OrganelleId, list[float]] = defaultdict(list)
    events = list[Event]()
    while True:
        counts = [PairedCounts.of(verdicts[child], verdicts[parent]) for parent in merge.cells]
        if (decision := merge.gate.rule(counts)) != "go on":
            break
        assignments = []
        for cell in cells:
            generator = context.draw("probation", child, *cell, len(events))
            items = context.tasks.draw(cell, merge.questions, generator)
            for name in (child, *merge.cells):
                assignments.append(Assignment(name, items, purpose="probation"))
        if affordable_assignments(assignments, context) != assignments:
            decision = "reject"  # what is left of the budget pays for no proof
            break
        for outcome in act(assignments, context):
            verdicts[outcome.assignment.organelle_id] += outcome.verdicts
            events.append(acted(context.state.generation, outcome))
    best = min(counts, key=lambda pairs: pairs.wins - pairs.losses)
    return Trial(decision, best, events)
