"""Measure the size of the source tree and how far a change or a row of data travels through it.

    python benchmarks/house.py                    # this tree
    python benchmarks/house.py --root DIR         # another checkout
    python benchmarks/house.py --time             # also time `make test` and `make demo`
    python benchmarks/house.py --list             # the functions that a row of data passes, in order of call

Lines and files are those of `src/laconic/**/*.py`. The two counts that need a rule:

*Files to touch* for a new member of a kind: the member's own files (for a suite, its test and every file of `bench`,
`cli` and `report` that has its name in its path), and every file that lists all members of the kind by hand, so that
a new one has to be added there. Comments and docstrings do not list. Searched are `src/`, the reference pages of the
documentation and the tables of members in `tests/`. Benchmarks and the demo choose what they show: they are searched
for suites only.

*Functions × files*: the distinct Python functions of laconic (lambdas, generators and comprehensions included), and
their files, that run while `laconic fit rows.csv` turns 200 rows into a model. It fits twice and counts the second
time, so that nothing is imported or compiled while counting.
"""

import argparse
import ast
import contextlib
import io
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

ALGORITHMS = ("kernels", "quantizers", "coders", "codec", "exchange", "training", "glm", "data")
KINDS = {  # members that every table of the kind contains, under one of their names
    "quantizer": [{"nuqsgd", "qsgd", "qsgdinf", "sign"}],
    "family": [{"bernoulli", "gaussian", "poisson", "multinomial"}, {"logistic", "linear", "poisson", "multinomial"}],
    "suite": [{"codec", "exchange", "ddp", "glm"}],
}
SUITE = "ddp"  # the suite whose own files stand for a new one's


def sources(root: Path) -> list[Path]:
    """All Python files of the package."""
    return sorted((root / "src" / "laconic").rglob("*.py"))


def n_lines(paths: list[Path]) -> int:
    """Lines of some files together."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def words(path: Path) -> set[str]:
    """Names and words of strings in a file, in lower case; for a reference page, the names it describes."""
    text = path.read_text()
    if path.suffix == ".md":
        return set(re.findall(r"\w+", " ".join(re.findall(r"^::: (.*)$", text, flags=re.MULTILINE)).lower()))
    tree, found = ast.parse(text), set()
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            found.update(re.findall(r"\w+", node.value.lower()))
        for field in ("id", "attr", "name", "asname", "arg", "module"):
            if isinstance(name := getattr(node, field, None), str):
                found.update(name.lower().split("."))
    return found


def parts(path: Path, root: Path) -> set[str]:
    """The words of a path in the tree."""
    return set(re.split(r"\W|_", relative(path, root)))


def lists(root: Path, kind: str) -> list[Path]:
    """Files that name every member of a kind."""
    chosen = {"bench", "demo"}  # a benchmark and the demo choose what they show
    searched = [path for path in sources(root) if kind == "suite" or not chosen & parts(path, root)]
    searched += sorted((root / "docs").glob("reference*.md"))
    searched += [
        path for path in sorted((root / "tests").rglob("*.py")) if path.stem in ("members", "tables", "documents")
    ]
    if kind == "quantizer":
        searched += sorted((root / "tests").rglob("test_golden_bytes.py"))
    families = (root / "src" / "laconic" / "glm" / "families").glob("*.py")
    has_gamma = kind == "family" and any("class Gamma(" in path.read_text() for path in families)
    newest = {"gamma"} if has_gamma else set()  # the newest family has no kernel, so a list of kernels does not count
    return [path for path in searched if any(members | newest <= words(path) for members in KINDS[kind])]


def to_touch(root: Path, kind: str) -> list[Path]:
    """Files to touch for a new member of a kind, its own first."""
    if kind != "suite":
        return [Path(f"(its own file, a {kind})"), *lists(root, kind)]
    front = [path for path in sources(root) if {"bench", "cli", "report"} & parts(path, root)]
    own = [path for path in front if SUITE in parts(path, root)]
    return list(dict.fromkeys([*own, *lists(root, kind), Path("(its test)")]))


def csv_to_coefficient(root: Path) -> dict[tuple[str, str, int], int]:
    """(file, name, line) of every function of laconic that a fit of a CSV file calls, in order, with its depth."""
    package = str(root / "src" / "laconic")
    sys.path.insert(0, str(root / "src"))
    from laconic.cli import main

    called: dict[tuple[str, str, int], int] = {}

    def profile(frame: FrameType, event: str, argument: object) -> None:
        code, depth, outer = frame.f_code, 0, frame.f_back
        key = (code.co_filename, code.co_qualname, code.co_firstlineno)
        if event != "call" or not code.co_filename.startswith(package) or key in called:
            return
        while outer is not None:
            depth, outer = depth + outer.f_code.co_filename.startswith(package), outer.f_back
        called[key] = depth

    with tempfile.TemporaryDirectory() as folder:
        write_rows(rows := Path(folder, "rows.csv"))
        command = ["fit", str(rows), "--target", "y", "-o", str(Path(folder, "model.safetensors")), "--json"]
        if quietly(main, command) != 0:
            raise SystemExit("house: laconic fit failed")
        threading.setprofile(profile)
        sys.setprofile(profile)
        quietly(main, command)
        sys.setprofile(None)
        threading.setprofile(None)
    return called


def write_rows(path: Path) -> None:
    """200 rows of three columns and a label."""
    rng = random.Random(0)  # noqa: S311
    lines = ["a,b,c,y"]
    for _ in range(200):
        a, b, c = (rng.gauss(0, 1) for _ in range(3))
        lines.append(f"{a:.6f},{b:.6f},{c:.6f},{int(a - b + rng.gauss(0, 0.5) > 0)}")
    path.write_text("\n".join(lines) + "\n")


def quietly(main: Callable[[list[str]], int], command: list[str]) -> int:
    """Exit code of a command, its output discarded."""
    with contextlib.redirect_stdout(io.StringIO()):
        return main(command)


def seconds(root: Path, target: str) -> str:
    """Wall time of `make target`; its output goes to stderr."""
    began = time.perf_counter()
    done = subprocess.run(["make", target], cwd=root, stdout=sys.stderr, check=False)  # noqa: S603, S607
    took = time.perf_counter() - began
    return f"{took:.0f} s" if done.returncode == 0 else f"{took:.0f} s, failed"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--time", action="store_true", help="also time make test and make demo")
    parser.add_argument("--files", action="store_true", help="name the files that are counted")
    parser.add_argument("--list", action="store_true", help="list the functions that a row of data passes")
    arguments = parser.parse_args()
    root = arguments.root.resolve()

    all_files = sources(root)
    outside = [path for path in all_files if path.relative_to(root / "src" / "laconic").parts[0] not in ALGORITHMS]
    touched = {kind: to_touch(root, kind) for kind in KINDS}
    called = csv_to_coefficient(root)
    size = f"{n_lines(all_files):,} / {len(all_files)}"
    touch = " / ".join(str(len(files)) for files in touched.values())
    way = f"{len(called)} × {len({file for file, _, _ in called})}"
    test, demo = (seconds(root, target) if arguments.time else "(--time)" for target in ("test", "demo"))
    rows = [
        ("lines / files of src/laconic", "37,313 / 446", size, "28,000 / 300", "25,000 / 250"),
        ("lines outside the algorithms", "15,300", f"{n_lines(outside):,}", "8,000", "6,000"),
        ("files for a quantizer / family / suite", "7 / 10 / 12", touch, "3 / 2 / 3", "2 / 2 / 2"),
        ("functions × files, CSV row to coefficient", "238 × 56", way, "140 × 32", "100 × 25"),
        ("make test on 2 idle cores", "12–15 min", test, "6 min", "4 min"),
        ("make demo after install", "60 s", demo, "60 s", "40 s"),
    ]
    print_table([("", "before", "now", "at least", "aim"), *rows])
    for (file, name, line), depth in called.items() if arguments.list else ():
        sys.stdout.write(f"{'  ' * depth}{relative(Path(file), root)}:{line} {name}\n")
    if arguments.files:
        for kind, files in touched.items():
            sys.stdout.write(f"\n{kind}: {', '.join(relative(path, root) for path in files)}\n")
        for file in sorted({file for file, _, _ in called}):
            names = sorted(name for other, name, _ in called if other == file)
            sys.stdout.write(f"\n{relative(Path(file), root)}: {', '.join(names)}\n")


def relative(path: Path, root: Path) -> str:
    """A path as seen from the root of the tree."""
    return str(path.relative_to(root)) if path.is_absolute() else str(path)


def print_table(rows: list[tuple[str, ...]]) -> None:
    """A table in Markdown, with its columns aligned."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    rule = tuple("-" * width for width in widths)
    for row in [rows[0], rule, *rows[1:]]:
        sys.stdout.write("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |\n")


if __name__ == "__main__":
    main()
