"""The documentation as a site: every page is in its table of contents, every public name in its reference."""

from pathlib import Path

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
