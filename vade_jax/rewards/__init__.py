"""Answers judged by rules: extraction, comparison by kind, format, and their mix."""

# Of the built-in verifiers: one more whenever they judge an answer otherwise than before. A run that goes
# on under another says so.
VERSION = 2
