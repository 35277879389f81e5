"""A bill of materials of a release, in SPDX 2.3: laconic, what it depends on, and the versions that it was tested with.

Usage: python .ci/sbom.py FILE
"""

import json
import re
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
NONE = "NOASSERTION"


def package(name: str, version: str, licence: str = NONE) -> dict[str, object]:
    """One package."""
    return {
        "SPDXID": f"SPDXRef-{re.sub(r'[^A-Za-z0-9.-]', '-', name)}",
        "name": name,
        "versionInfo": version,
        "downloadLocation": NONE,
        "filesAnalyzed": False,
        "licenseConcluded": licence,
        "licenseDeclared": licence,
        "copyrightText": NONE,
    }


def bill() -> dict[str, object]:
    """The document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.search(r'"(.+)"', (ROOT / "src" / "laconic" / "_version.py").read_text())[1]
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE))
    needed = [
        *project["dependencies"],
        *(one for extra in ("cli", "files", "glm") for one in project["optional-dependencies"][extra]),
    ]
    names = list(dict.fromkeys(re.match(r"[\w-]+", one)[0] for one in needed))
    own, others = package("laconic", version, project["license"]), [package(name, pinned[name]) for name in names]
    root = own["SPDXID"]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"laconic-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/laconic-{version}",
        "creationInfo": {
            "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: laconic/.ci/sbom.py"],
        },
        "packages": [own, *others],
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": root},
            *(
                {"spdxElementId": root, "relationshipType": "DEPENDS_ON", "relatedSpdxElement": one["SPDXID"]}
                for one in others
            ),
        ],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=1) + "\n")
