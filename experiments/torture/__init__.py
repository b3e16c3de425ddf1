"""The parts of `python -m experiments.torture`: faults, the jobs they hit, what must be left."""
