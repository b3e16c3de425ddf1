"""Selectors of other papers, a file each."""
