"""No code runs that came as data: nothing unpickles, evaluates or starts a shell, and no port is open.

Nor does a key get where others can read it: config.json, logs, reports, errors.

Checkpoints, data files, chat templates, answers and configs come from strangers. The one exception is what
the user names as code: `--config` and `reward.function` import a file.
"""

import ast
import pathlib

import pytest

from experiments.evals import chat
from experiments.evals import settings as evaluation
from tests import http_server
from vade_jax import client, settings

ROOT = pathlib.Path(__file__).parents[1]
FILES = sorted(
    path
    for folder in ("vade_jax", "experiments", "configs", "third_party")
    for path in (ROOT / folder).rglob("*.py")
)
MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "yaml", "joblib"}
CALLS = {"eval", "exec", "os.system", "os.popen", "jinja2.Template", "jinja2.Environment"}
KEYWORDS = {"shell", "allow_pickle", "trust_remote_code"}
ALLOWED = {
    # The pages' own templates, from the package; what a run wrote is escaped.
    ("vade_jax/report/page.py", "jinja2.Environment"),
    ("experiments/arenas/sweep_page.py", "jinja2.Environment"),
    # The user's own function, its arguments and verdicts, between a run and a process that it has started.
    ("vade_jax/rewards/functions.py", "cloudpickle"),
    ("vade_jax/rewards/functions.py", "pickle"),
    ("vade_jax/rewards/process.py", "pickle"),
}


def dangers(text):
    """Yields what a file does that nothing here may do."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            yield node.module
        elif isinstance(node, ast.Call):
            if (name := ast.unparse(node.func)) in CALLS:
                yield name
            for keyword in node.keywords:
                if keyword.arg in KEYWORDS and getattr(keyword.value, "value", True):
                    yield keyword.arg
        elif isinstance(node, ast.Constant) and node.value in ("0.0.0.0", "::"):
            yield node.value


def test_nothing_that_came_as_data_is_run():
    found = {(str(path.relative_to(ROOT)), x) for path in FILES for x in dangers(path.read_text())}
    assert found == ALLOWED


# ------------------------------------------------------------------------------ keys
class Telltale(http_server.ScriptedChat):
    """Says the key that it was given, and more that is not meant for a terminal."""

    status = 401

    def respond(self, request):
        key = request.handler.headers["Authorization"]
        return (
            self.status,
            f'{{"choices": [{{"message": {{"content": "{key}\x1b[2J"}}}}]}}'.encode(),
        )


def chain(error):
    while error is not None:
        yield f"{error} {error!r} {getattr(error, '__notes__', '')}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("status", [401, 500, 418, 200])
def test_a_key_that_a_server_repeats_is_in_no_error_and_no_file(status, tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", key := "sk-sentinel-4711")
    said = []
    with Telltale() as server:
        server.status = status
        options = {"api_key_env": "JUDGE_KEY", "retries": 0}
        ask = evaluation.Server.from_dict({"url": server.url, "model": "m", **options})
        talk = chat.Chat(ask, tmp_path / "replies.jsonl")
        for call in (talk.check, lambda: talk.ask([])):
            try:
                said.append(str(call()))
            except Exception as error:
                said += chain(error)
    assert any("***" in x for x in said) and not any("\x1b" in x for x in said if status != 200)
    said += [path.read_text() for path in tmp_path.iterdir()]
    assert not any(key in x for x in said)


@pytest.mark.parametrize(
    "make",
    [
        lambda secret: client.Client(f"http://me:{secret}@host"),
        lambda secret: client.Client(f"http://host/v1?key={secret}"),
        lambda secret: settings.Engine(url=f"http://me:{secret}@host"),
        lambda secret: evaluation.Server(url=f"http://:{secret}@host", model="m"),
        lambda secret: chat.Chat(evaluation.Server("http://host", "m", api_key_env=secret), "none"),
    ],
)
def test_a_key_in_a_setting_is_an_error_without_it(make):
    with pytest.raises(ValueError, match="environment variable") as caught:
        make("sk-sentinel-4711")
    assert not any("4711" in x for x in chain(caught.value))
