"""Ends a run between two steps when the machine or the user asks for it."""

import signal

from vade_jax.trainer import processes


class StopSignal:
    """True once SIGTERM or Ctrl-C came: the step under way is finished and saved.

    Of several processes any one may get it; all stop after the same step.
    """

    def __init__(self):
        self._stopped = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def __call__(self) -> bool:
        return processes.any_of(self._stopped)

    def _stop(self, number, frame):
        if self._stopped:
            raise KeyboardInterrupt  # asked twice
        self._stopped = True
