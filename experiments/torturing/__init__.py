"""What `python -m experiments.torture` is made of: faults, the jobs they hit, and what must be left of them."""
