"""Runs a module with a clock that jumps: python -m experiments.torture.moved_clock AFTER JUMP MODULE ...

AFTER and JUMP are in seconds. Only Python's `time.time` and `time.time_ns` jump, not the clock of C++ and
not the monotonic clock.
"""

import runpy
import sys
import time


def main() -> None:
    """Replaces the clock, then runs the module as if the command line had called it."""
    after, jump, module, *arguments = sys.argv[1:]
    real, real_ns, since = time.time, time.time_ns, time.monotonic()

    def moved() -> float:
        return float(jump) if time.monotonic() - since > float(after) else 0.0

    time.time = lambda: real() + moved()
    time.time_ns = lambda: real_ns() + int(1e9 * moved())
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
