"""What a run writes: checkpoints, metrics, and the log of its rollouts."""
