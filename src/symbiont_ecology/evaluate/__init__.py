"""Measuring what came of a run, on questions that no learner ever met. Evaluations change no run.

A straight path: ``items`` and ``shifts`` are the questions, a routing (``routings``) says who of
the ``pool`` answers each, the ``evaluator`` asks and keeps answers, ``measure`` makes accuracies of
the verdicts, and ``evaluation_log`` writes them down. Beside it: a first look at a host, one
adapter beside its host, and export.
"""
