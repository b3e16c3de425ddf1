"""The parts of `python -m experiments.torture`: faults, the jobs that they hit, and what must remain."""
