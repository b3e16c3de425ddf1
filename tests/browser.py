"""Drives a headless Chromium over its debugging pipe, with the standard library alone."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
TIMEOUT = 15  # seconds


def executable():
    """Returns the path of a Chromium, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page; what went wrong in it is in `errors`, what it asked for in `requests`."""

    def __init__(self):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command_end, self._write = os.pipe()
        self._read, reply_end = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        flags += [
            "--remote-debugging-pipe",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
        ]
        flags += ["--disable-dev-shm-usage", f"--user-data-dir={self._profile.name}"]
        redirect = f'exec "$@" 3<&{command_end} 4>&{reply_end}'
        self._process = subprocess.Popen(
            ["bash", "-c", redirect, "bash", executable(), *flags, "about:blank"],
            pass_fds=(command_end, reply_end),
            stderr=subprocess.DEVNULL,
        )
        os.close(command_end)
        os.close(reply_end)
        self._ids, self._buffer, self._session = itertools.count(1), b"", None
        self.errors, self.requests, self._events = [], [], []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        """Returns the result of a command of the DevTools protocol."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == number:
                assert "error" not in reply, reply["error"]
                return reply["result"]

    def open(self, path, *, width, height=900, dark=False):
        """Loads a file in a window of a size and a color scheme; waits until it is loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.resize(width, height)
        self.errors.clear()
        self.requests.clear()
        self._events.clear()
        self.send("Page.navigate", url=f"file://{path}")
        while "Page.loadEventFired" not in self._events:
            self._receive()
        self.settle()

    def resize(self, width, height):
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.send("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)

    def settle(self):
        """Waits for two frames, in which the charts are drawn."""
        self.run(
            "new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)))"
        )

    def run(self, expression):
        """Returns the value of a JavaScript expression, awaited."""
        options = {"returnByValue": True, "awaitPromise": True}
        result = self.send("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, expression):
        """Waits until an expression is true."""
        end = time.monotonic() + TIMEOUT
        while not self.run(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def click(self, selector):
        """Clicks with the mouse in the middle of the first element."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect();"
            "return {x: b.x + b.width / 2, y: b.y + b.height / 2}; })()"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.send("Input.dispatchMouseEvent", type=kind, **place, **button)
        self.settle()

    def screenshot(self, path, *, whole=False):
        """Writes a PNG of the window, or of the whole page."""
        options = {"captureBeyondViewport": True} if whole else {}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {**size, "scale": 1}
        data = self.send("Page.captureScreenshot", format="png", **options)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        self._process.wait(TIMEOUT)
        self._profile.cleanup()

    def _receive(self):
        while b"\0" not in self._buffer:
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "the browser ended"
            self._buffer += chunk
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, params):
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in (
            "error",
            "warning",
        ):
            self.errors.append(params["args"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in (
            "error",
            "warning",
        ):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
