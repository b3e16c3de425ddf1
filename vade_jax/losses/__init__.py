"""Losses: pure functions of arrays, from rewards and log-probs to a scalar."""
