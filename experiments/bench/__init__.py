"""What `python -m experiments.bench` measures: timing, workloads, and one file for each kind of suite."""
