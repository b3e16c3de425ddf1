"""A proxy that does to requests and replies what networks, gateways and dying servers do."""

import collections
import os
import random
import time

import httpx

from tests.http_server import CHAT, DROP, ScriptedServer, error

# What may happen to any request, and how often among ten faults.
FAULTS = {
    "drop": 1,  # it does not arrive
    "lost": 1,  # it is done, the reply does not come back
    "twice": 1,  # it arrives twice, the second reply comes back
    "late": 1,
    "cut": 1,  # closed in the middle of the reply's body
    "half": 1,  # half of a reply, said to be whole
    "noise": 1,  # 200 and bytes
    "other": 1,  # 200 and JSON of another form
    500: 1, 503: 1, 429: 1,
    "mixed": 3,  # a chat gets the reply to an earlier one
    "hang": 0.5,
}  # fmt: skip


class Proxy(ScriptedServer):
    """Passes requests on to a server; one of `rate` of them meets a fault, until there were `most`.

    Attributes:
        counts: of the faults that there were.
    """

    def __init__(self, target, seed, *, rate=0.3, most=1_000, late_s=0.05):
        self.target, self.rate, self.most, self.late_s = target, rate, most, late_s
        self.counts = collections.Counter()
        self._random, self._last = random.Random(seed), None
        self._client = httpx.Client(base_url=target, timeout=600, trust_env=False)
        super().__init__()

    def respond(self, request):
        with self._lock:
            fault = self._draw(request.path)
            self.counts.update([fault] if fault else [])
        if isinstance(fault, int):
            return error(fault, "out of luck")
        if fault == "drop":
            return DROP
        if fault == "hang":
            request.killed.wait(60)
            return DROP
        if fault == "late":
            time.sleep(self.late_s)
        if fault == "twice":
            self._forward(request)
        return self._spoil(fault, request, self._forward(request))

    def _draw(self, path):
        if self.counts.total() >= self.most or self._random.random() > self.rate:
            return None
        (fault,) = self._random.choices(list(FAULTS), FAULTS.values())
        return None if fault == "mixed" and path != CHAT else fault

    def _forward(self, request):
        try:
            reply = self._client.request(request.method, request.path, json=request.body)
        except httpx.HTTPError:
            return DROP
        return reply.status_code, reply.content

    def _spoil(self, fault, request, reply):
        if reply is DROP or fault == "lost":
            return DROP
        status, content = reply
        if request.path == CHAT and status == 200:
            with self._lock:
                earlier, self._last = self._last or content, content
            if fault == "mixed":
                return 200, earlier
        if fault == "cut":
            request.handler.reply(status, content[: len(content) // 2], length=len(content) + 1)
            return DROP
        spoiled = {"half": content[: len(content) // 2], "noise": os.urandom(99), "other": b"[7]"}
        return status, spoiled.get(fault, content)
