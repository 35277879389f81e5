"""The documentation as a site: every page is in its table of contents, every public name in its reference."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
import yaml

import laconic

ROOT = Path(__file__).parents[2]
PACKAGES = [
    *["quantizers", "coders", "codec", "exchange", "training", "glm", "glm.estimators", "glm.analysis"],
    *["data", "planner", "report"],
]


def pages(nav):
    """All files of a table of contents."""
    for entry in nav:
        for value in entry.values():
            yield from pages(value) if isinstance(value, list) else [value]


def test_every_page_is_in_the_table_of_contents():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert sorted(pages(site["nav"])) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def described(page):
    """Last part and whole path of every name that a page of the reference describes."""
    paths = re.findall(r"^::: (\S+)$", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE)
    assert len(set(paths)) == len(paths)
    found = {path: path.rpartition(".")[2] for path in paths if not path.endswith(".registry")}
    modules = [importlib.import_module(path) for path in paths if path.endswith(".registry")]  # all that they export
    return found | {f"{module.__name__}.{name}": name for module in modules for name in module.__all__}


def test_the_reference_has_every_name_of_the_package():
    assert set(described("reference.md").values()) == set(laconic.__all__) - {"__version__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_parts_have_every_other_name(package):
    public = set(importlib.import_module(f"laconic.{package}").__all__) - set(laconic.__all__)
    parts = described("reference-parts.md")
    found = {name for path, name in parts.items() if path.startswith(f"laconic.{package}.")}
    assert sorted(public - found) == []


def test_every_described_name_is_there():
    for path, name in (described("reference.md") | described("reference-parts.md")).items():
        assert hasattr(importlib.import_module(path.rpartition(".")[0]), name), path


@pytest.mark.parametrize("estimator", [laconic.CASGDClassifier, laconic.CASGDRegressor])
def test_the_page_on_models_has_every_parameter(estimator):
    table = (ROOT / "docs" / "glm.md").read_text().partition("## Parameters")[2].partition("\n## ")[0]
    assert [name for name in inspect.signature(estimator).parameters if f"`{name}`" not in table] == []
