"""Ends a run between two steps when the machine or the user asks for it."""

import signal


class StopSignal:
    """True once SIGTERM or Ctrl-C came: the step under way is finished and saved."""

    def __init__(self):
        self._stopped = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def __call__(self) -> bool:
        return self._stopped

    def _stop(self, number, frame):
        if self._stopped:
            raise KeyboardInterrupt  # asked twice
        self._stopped = True
