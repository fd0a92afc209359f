"""A protocol that runs in seconds, for tests."""

TINY = """
name: tiny
question: does the machinery hold?
base: [base]
set: [host.rank=2, "tasks.families=[math.add, logic.bool]", "tasks.depths=[short]"]
unit_flops: 4.0e+8
budgets: [0.5, 1]
seeds: [0, 1]
tuning_seeds: [7]
main: single
shifts: [in-distribution, shared-families, retention]
per_cell: 4
tuning_per_cell: 3
flip: {at: 1, back: 1.5, extra: [0, 0.5], per_cell: 3}
arms:
  single:
    about: one adapter
    set: [strategy.kind=single, strategy.samples=2]
    routing: single
    tune: [[strategy.questions=1], [strategy.questions=2]]
  sft:
    about: gold
    sees: gold answers
    set: ["strategy={kind: single, samples: 0}", learning_rule=supervised]
    routing: single
    tune: [[strategy.questions=1], [strategy.questions=2]]
  single-routed: {about: the same behind a router, of: single}
"""
