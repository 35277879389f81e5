"""Pages of the documentation, written from benchmarks/results."""

from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("readme", "papers", "performance", "planning", "precision", "decentralised")


def written() -> dict[Path, str]:
    """Every page and figure with the text that it should have."""
    found = {}
    for name in PAGES:
        page = import_module(f"benchmarks.pages.{name}")
        found[page.PAGE] = page.rendered(page.PAGE.read_text())
    figures, papers, readme = (import_module(f"benchmarks.pages.{name}") for name in ("figures", "papers", "readme"))
    drawings = figures.drawn() | papers.figures() | {"exchange-speed.svg": readme.exchange_speed()}
    found |= {figures.FIGURES / name: drawing for name, drawing in drawings.items()}
    return found
