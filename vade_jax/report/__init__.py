"""What people read of a run: the page (report.html), figures, and tables of comparison.

Everything here reads run directories; nothing writes what a run needs.
"""

try:
    from vade_jax.report.page import at_end, at_start, write
except ModuleNotFoundError as error:
    fix = f"vade_jax.report needs {error.name}: in the repository, pip install '.[report]'"
    raise ModuleNotFoundError(fix, name=error.name) from error

__all__ = ["at_end", "at_start", "write"]
