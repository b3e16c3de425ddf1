"""Runs a module under a clock that jumps: python -m experiments.torture.moved_clock AFTER JUMP MODULE ...

AFTER and JUMP are seconds. `time.time` of Python alone is moved; C++ and the monotonic clock are not.
"""

import runpy
import sys
import time


def main() -> None:
    """Moves the clock, then runs the module as if it had been called."""
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
