"""DAPO on the tiny job, with its filter of groups and its loss; `:selector=vade` is VADE with that loss."""

from configs import tiny

get_config = lambda arg=None: tiny.base(arg, selector="dapo", loss="dapo")
