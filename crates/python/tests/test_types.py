"""The types that an editor sees, as mypy reads them."""

import json
import re
import subprocess
import sys

import pytest


def test_the_package_the_page_and_the_notebooks_have_the_types_that_they_say(repository, tmp_path):
    pytest.importorskip("mypy")
    page = (repository / "docs/python.md").read_text()
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if not block.startswith("# not run")]
    (tmp_path / "page.py").write_text("\n".join(blocks))
    for notebook in sorted((repository / "docs/notebooks").glob("*.ipynb")):
        cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
        (tmp_path / f"{notebook.stem}.py").write_text("\n".join("".join(cell["source"]) for cell in cells))
    (tmp_path / "wrong.py").write_text("import fedra\n\nfedra.run(3, folder=[])\nfedra.Run('x').score + 'x'\n")
    command = [sys.executable, "-m", "mypy", "--no-site-packages", "--ignore-missing-imports", "--check-untyped-defs", "--warn-unused-ignores"]
    command += ["--cache-dir", tmp_path / "cache"]
    environment = {"MYPYPATH": str(repository / "crates/python/python")}

    def read(*what):
        return subprocess.run([*command, *what], capture_output=True, text=True, env=environment, cwd=tmp_path)

    programs = [path for path in tmp_path.glob("*.py") if path.stem != "wrong"]
    assert len(programs) == 3
    for what in (["-p", "fedra"], *([program] for program in programs)):
        done = read(*what)
        assert done.returncode == 0, done.stdout
    # It reads the types, and does not take everything for anything.
    assert read("wrong.py").stdout.count("error:") >= 3
