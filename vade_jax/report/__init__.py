"""What people read about a run: its page, report.html.

This package reads run directories. No run depends on anything that it writes.
"""

try:
    from vade_jax.report.page import at_end, at_start, write
except ModuleNotFoundError as error:
    fix = f"vade_jax.report needs {error.name}: in the repository, pip install '.[report]'"
    raise ModuleNotFoundError(fix, name=error.name) from error

__all__ = ["at_end", "at_start", "write"]
