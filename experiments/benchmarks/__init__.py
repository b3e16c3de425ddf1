"""What `experiments.bench` measures, one file a suite."""
