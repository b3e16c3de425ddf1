"""The files of a run: checkpoints, metrics, and the log of its rollouts."""
