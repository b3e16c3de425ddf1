"""DAPO on the tiny job, with its filter of groups and its loss; `:vade` is VADE with DAPO's loss."""

import functools

from configs import default, tiny

get_config = functools.partial(tiny.base, selector="dapo", loss=default.dapo)
