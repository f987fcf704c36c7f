"""The package as it is read: documentation, types, examples, notebooks."""

import ast
import inspect
import pydoc
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import fedra
import fedra._fedra
import pytest


def test_help_says_what_everything_is():
    for name in fedra.__all__:
        value = getattr(fedra, name)
        if name != "__version__":
            assert inspect.getdoc(value), name
    told = pydoc.render_doc(fedra, renderer=pydoc.plaintext)
    assert "fine-tunes Transformers across organisations" in told
    assert "data={" in told


def test_everything_public_has_a_docstring():
    for name in fedra.__all__:
        owner = getattr(fedra, name)
        if inspect.isclass(owner) and owner.__module__.startswith("fedra"):
            for member, value in vars(owner).items():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    assert inspect.getdoc(value), f"{name}.{member}"


def test_the_stubs_name_what_the_extension_has():
    stub = Path(fedra.__file__).with_name("_fedra.pyi")
    tree = ast.parse(stub.read_text())
    nodes = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    # Types that only the stub has begin with an underscore.
    written = {node.name: node for node in nodes if not node.name.startswith("_")}
    present = {name for name in vars(fedra._fedra) if not name.startswith("__")}
    assert set(written) == present
    for name, node in written.items():
        if isinstance(node, ast.ClassDef):
            members = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
            found = {member for member in vars(getattr(fedra._fedra, name)) if not member.startswith("__")}
            assert {member for member in members if not member.startswith("__")} == found, name
        else:
            arguments = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
            assert arguments == list(inspect.signature(getattr(fedra._fedra, name)).parameters), name
    assert stub.with_name("py.typed").is_file()


def test_the_page_in_the_book_runs(repository, tmp_path, monkeypatch):
    text = (repository / "docs/python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) > 5
    run = [block for block in blocks if not block.startswith("# not run")]
    script = tmp_path / "page.py"
    script.write_text("\n".join(textwrap.dedent(block) for block in run))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_notebook_shows_a_live_run(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    tests = str(Path(__file__).parent)
    cells = [
        f"import sys; sys.path.insert(0, {tests!r})\nimport fedra\nfrom conftest import TABLES, some_rows",
        "run = fedra.run(TABLES, some_rows())\nrun",
        "fedra.plan(TABLES, some_rows())",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = notebook.cells[1].outputs
    kinds = [output.output_type for output in outputs]
    assert "stream" not in kinds and "error" not in kinds
    live = outputs[0]["data"]["text/html"]
    assert "round 3/3" in live and "<pre" in live and "background:#3b7dd8" not in live
    assert "<iframe" in outputs[-1]["data"]["text/html"]
    assert "<table>" in notebook.cells[2].outputs[-1]["data"]["text/html"]


@pytest.mark.parametrize("name", ["private_text", "reading_a_run"])
def test_the_notebooks_of_the_book_run(name, repository, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    model = repository / "../shared/models/minilm-l6"
    if name == "private_text":
        if not model.is_dir():
            pytest.skip("needs ../shared/models/minilm-l6")
        monkeypatch.setenv("FEDRA_NOTEBOOK_MODEL", str(model.resolve()))
        # A debug build learns slowly.
        monkeypatch.setenv("FEDRA_NOTEBOOK_NOTES", "3")
    notebook = nbformat.read(repository / f"docs/notebooks/{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "a notebook is kept without its outputs"
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    assert any("<iframe" in output["data"].get("text/html", "") for output in shown)


def test_files_know_each_other_in_no_circle():
    """Each file of the package takes from others at its top alone, and never from one that takes from it."""
    ties = {}
    for file in Path(fedra.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text())
        taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level > 0]
        assert all(node in tree.body for node in taken), f"{file.name} imports inside of a function"
        names = [[node.module] if node.module else [alias.name for alias in node.names] for node in taken]
        ties[file.stem] = {name for names in names for name in names} - {"_fedra"}
    assert "_data" in ties["_run"]
    while ties:
        free = [name for name, known in ties.items() if not known & ties.keys()]
        assert free, f"a circle: {ties}"
        for name in free:
            del ties[name]
