"""Selectors from other papers; those of one idea share a file."""
