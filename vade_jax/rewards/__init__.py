"""Judges answers by rules: extraction, comparison by kind, format, and the reward made of them."""

# Version of the built-in verifiers, raised whenever a verdict changes. A resumed run warns if it differs.
VERSION = 6
