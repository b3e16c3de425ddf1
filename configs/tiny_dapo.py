"""DAPO on the tiny job, with its filter of groups and its loss: see configs/tiny.py.

Takes up to three times the rollouts of configs/tiny_gspo.py, and about twice its time. A selector named
after the colon replaces the filter: `tiny_dapo.py:vade` is VADE with DAPO's loss.
"""

import functools

from configs import default, tiny

get_config = functools.partial(tiny.base, selector="dapo", loss=default.dapo)
