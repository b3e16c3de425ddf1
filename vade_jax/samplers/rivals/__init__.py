"""Selectors of other papers, one file a method."""
