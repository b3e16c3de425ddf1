"""Selectors from other papers, one file each."""
