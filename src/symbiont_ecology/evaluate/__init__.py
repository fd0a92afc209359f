"""Measuring what came of a run, on questions that no learner ever met. Evaluations change no
run."""
