"""Generate sections of the documentation, between markers, and figures from benchmarks/results.

Each module writes the sections of one page; its WRITERS map the name of a marker to the function that writes there.
"""

from importlib import import_module
from pathlib import Path

from benchmarks.pages.common import ROOT, filled

PAGES = {
    "README.md": "readme",
    "docs/papers.md": "papers",
    "docs/performance.md": "performance",
    "docs/planning.md": "planning",
    "docs/precision.md": "precision",
    "docs/quantizers.md": "quantizers",
    "docs/training.md": "training",
    "docs/decentralised.md": "decentralised",
    "docs/security.md": "security",
    "docs/ddp.md": "security",
}
DRAWN = ("figures", "papers", "performance", "readme", "training", "quantizers")
"""Modules that draw figures."""


def written() -> dict[Path, str]:
    """Every page and figure with its up-to-date text."""
    found = {}
    for page, name in PAGES.items():
        path = ROOT / page
        found[path] = filled(path.read_text(), import_module(f"benchmarks.pages.{name}").WRITERS)
    drawings = [import_module(f"benchmarks.pages.{name}").figures() for name in DRAWN]
    figures = ROOT / "docs" / "figures"
    return found | {figures / name: drawing for some in drawings for name, drawing in some.items()}
