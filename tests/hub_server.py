"""A hub in a thread: the part of huggingface.co's HTTP interface that its own libraries ask for."""

import hashlib
import http.server
import json
import re
import threading
import urllib.parse

_PATH = re.compile(
    r"/(?:api/(?P<api>models|datasets)/|(?P<kind>datasets)/)?(?P<name>[^/]+/[^/]+)"
    r"(?:/(?P<what>[^/]+)/(?P<revision>[^/]+)(?:/(?P<path>.*))?)?"
)


class Hub:
    """Repositories of one commit each.

    Args:
        models: name -> {path: bytes}.
        datasets: the same.

    Attributes:
        log: (method, path) of every request.
    """

    def __init__(self, models=(), datasets=()):
        self.repos = {("models", name): files for name, files in dict(models).items()}
        self.repos |= {("datasets", name): files for name, files in dict(datasets).items()}
        self.log = []

    def commit(self, kind, name):
        """Returns the commit of a repository: of its content."""
        files = sorted(self.repos[kind, name].items())
        return hashlib.sha1(repr(files).encode()).hexdigest()

    def __enter__(self):
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.hub = self
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        hub = self.server.hub
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        hub.log.append((self.command, path))
        match = _PATH.fullmatch(path)
        kind, name = match and (match["api"] or match["kind"] or "models"), match and match["name"]
        if match is None or (kind, name) not in hub.repos:
            return self._reply(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        files, commit = hub.repos[kind, name], hub.commit(kind, name)
        if match["revision"] not in (None, "main", commit):
            return self._reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        what, where = match["what"] or "revision", match["path"] or ""
        if what == "resolve":
            if where not in files:
                return self._reply(404, b"", {"X-Error-Code": "EntryNotFound"})
            etag = hashlib.sha1(files[where]).hexdigest()
            return self._reply(200, files[where], {"ETag": f'"{etag}"', "X-Repo-Commit": commit})
        entries = [_entry(path, data) for path, data in files.items()]
        if what == "tree":
            return self._json(_under(where, entries, deep="recursive=True" in url.query))
        if what == "paths-info":
            return self._json([x for x in entries if x["path"] in json.loads(body)["paths"]])
        siblings = [{"rfilename": path} for path in files]
        fields = {"id": name, "sha": commit, "siblings": siblings, "private": False, "tags": []}
        return self._json(fields | {"downloads": 0, "likes": 0, "gated": False, "disabled": False})

    do_POST = do_HEAD = do_GET

    def _json(self, value):
        self._reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _reply(self, status, data, headers):
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_):
        pass


def _entry(path, data):
    return {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}


def _under(folder, entries, deep):
    """Returns the files of a folder; with the folders in it, unless it is looked through `deep`."""
    prefix = f"{folder}/" if folder else ""
    inside = [x for x in entries if x["path"].startswith(prefix)]
    if deep:
        return inside
    rest = [x["path"].removeprefix(prefix) for x in inside]
    folders = {path.split("/")[0] for path in rest if "/" in path}
    return [x for x, path in zip(inside, rest, strict=True) if "/" not in path] + [
        {"type": "directory", "path": prefix + name, "oid": "0" * 40} for name in sorted(folders)
    ]
