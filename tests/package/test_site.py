"""The documentation as a site: every page is in its table of contents, figures are what the library says."""

import importlib.util
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def pages(nav):
    """All files of a table of contents."""
    for entry in nav:
        for value in entry.values():
            yield from pages(value) if isinstance(value, list) else [value]


def test_every_page_is_in_the_table_of_contents():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert sorted(pages(site["nav"])) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def figures():
    spec = importlib.util.spec_from_file_location("figures", ROOT / "benchmarks" / "figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["levels", "scatter_reduce", "blocks"])
def test_figures_are_what_the_library_says(name):
    module = figures()
    assert (module.FIGURES / f"{name.replace('_', '-')}.svg").read_text() == getattr(module, name)()
