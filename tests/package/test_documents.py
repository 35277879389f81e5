"""What the README and the docstrings show is what happens."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import laconic
from laconic.report import presentation

ROOT = Path(__file__).parents[2]
MODULES = [m.name for m in pkgutil.walk_packages(laconic.__path__, "laconic.") if ".cli" not in m.name]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_blocks_run_and_print_what_they_say(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        presentation, "_REGISTERED", dict(presentation._REGISTERED)
    )  # a page registers a suite of its own
    namespace: dict = {}
    for block in re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL):
        exec(compile(block, path.name, "exec"), namespace)  # noqa: S102
        printed = capsys.readouterr().out.splitlines()
        said = re.findall(r"^print\(.*\) +# (.+)$", block, flags=re.MULTILINE)
        assert [line for line in said if line not in printed] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_every_path_that_contributing_names_is_there():
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)*/?)`", (ROOT / "CONTRIBUTING.md").read_text())
    paths = [name for name in named if re.search(r"/|\.(py|md|cff|toml)$", name) and "NAME" not in name]
    assert len(paths) > 60
    assert [p for p in paths if not any((root / p).exists() for root in (ROOT, ROOT / "src" / "laconic"))] == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_every_path_of_the_repository_that_a_page_names_is_there(path):
    named = re.findall(r"`((?:src|tests|benchmarks|campaign|examples)/[\w./-]+)`", path.read_text())
    made = {"src/laconic/quantizers/squares.py", "src/laconic/glm/families/inverse_gaussian.py"}  # by the reader
    assert [name for name in named if name not in made and not (ROOT / name).exists()] == []
