"""Turns sources of questions into the arrays that the model reads."""
