"""What a rollout is worth to learning, one rule per file. Revenue and accuracy always use the
verdict."""
