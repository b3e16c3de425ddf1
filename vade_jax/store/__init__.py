"""What a run leaves on disk: checkpoints, metrics, rollouts, figures, a summary."""
