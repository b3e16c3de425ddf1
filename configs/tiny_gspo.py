"""VADE + GSPO on the tiny job, on a laptop CPU: see configs/tiny.py."""

from configs import tiny

get_config = lambda arg=None: tiny.base(arg, loss="gspo")
