"""What is shipped and what builds it: the wheel's contents, the lock, the pinned actions, the bill of materials."""

import importlib.util
import re
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = {"laconic/py.typed", *(f"laconic/report/page.{kind}" for kind in ("css", "html", "js"))}
PIN = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path):
    wheels = pytest.importorskip("hatchling.builders.wheel")
    (path,) = wheels.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(path).namelist()
    sources = {str(one.relative_to(ROOT / "src")) for one in (ROOT / "src").rglob("*.py")}
    about = {name.partition(".dist-info/")[2] for name in names if ".dist-info/" in name}
    assert about == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert {name for name in names if ".dist-info/" not in name} == sources | OTHERS


def test_the_lock_has_what_is_pinned_with_hashes():
    lock = (ROOT / ".ci" / "lock.txt").read_text()
    pinned = PIN.findall((ROOT / "constraints.txt").read_text())
    assert PIN.findall(lock) == [pin for pin in pinned if pin[0] != "torch"]
    for name, entry in re.findall(r"^([\w.-]+)==(.*?)(?=^\S|\Z)", lock, flags=re.MULTILINE | re.DOTALL):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), name


def test_actions_are_pinned_by_commit():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for used in re.findall(r"uses: *(.*)", path.read_text()):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v[\d.]+", used), used


def test_the_bill_of_materials_names_every_dependency():
    spec = importlib.util.spec_from_file_location("sbom", ROOT / ".ci" / "sbom.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    bill = module.bill()
    found = {one["name"]: one for one in bill["packages"]}
    assert {"laconic", "torch", "numpy", "numba", "pyarrow", "scikit-learn"} <= found.keys()
    assert found["laconic"]["licenseDeclared"] == "Apache-2.0"
    assert len(bill["relationships"]) == len(found)
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one["SPDXID"]) for one in found.values())
