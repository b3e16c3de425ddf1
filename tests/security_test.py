"""No code runs that came as data: nothing unpickles, evaluates or starts a shell, and no port is open.

Checkpoints, data files, chat templates, answers and configs come from strangers. The one exception is what
the user names as code: `--config` and `reward.function` import a file.
"""

import ast
import pathlib

import pytest

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
    # The page's own template, from the package; what a run wrote is escaped.
    ("vade_jax/report/page.py", "jinja2.Environment"),
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


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from dill import loads",
        "eval(answer)",
        "os.system(name)",
        "subprocess.run(text, shell=True)",
        "np.load(file, allow_pickle=True)",
        "jinja2.Environment().from_string(template)",
        "serve(host='0.0.0.0')",
    ],
)
def test_each_danger_would_be_found(line):
    assert list(dangers(line))
