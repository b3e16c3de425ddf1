"""The parts of `python -m experiments.bench`: timing, workloads, and one file for each kind of suite."""
