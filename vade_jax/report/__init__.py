"""report.html: everything a run did on one page that needs no server and no network."""

from vade_jax.report.page import COMPARISON, FILE, at_end, write
from vade_jax.report.run import Run, read

__all__ = ["COMPARISON", "FILE", "Run", "at_end", "read", "write"]
