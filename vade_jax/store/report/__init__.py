"""report.html: everything a run did on one page that needs no server and no network."""

from vade_jax.store.report.page import COMPARISON, FILE, write
from vade_jax.store.report.run import Run, read

__all__ = ["COMPARISON", "FILE", "Run", "read", "write"]
