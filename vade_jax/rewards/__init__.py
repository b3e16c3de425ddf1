"""Judges answers by rules: extraction, comparison by kind, format, and the reward made of them."""

# Version of the built-in verifiers, raised whenever they judge some answer differently. A resumed run says so
# if it has changed.
VERSION = 6
