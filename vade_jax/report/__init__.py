"""What people read of a run: the page (report.html), figures, and tables of comparison.

Everything here reads run directories; nothing writes what a run needs.
"""

from vade_jax.report.page import at_end, write

__all__ = ["at_end", "write"]
