"""DAPO on the tiny job, with its filter of groups and its loss; `:selector=vade` is VADE with that loss."""

import functools

from configs import default, tiny

get_config = functools.partial(tiny.base, selector="dapo", loss=default.dapo)
