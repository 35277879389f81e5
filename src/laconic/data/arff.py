"""ARFF: the header, whose declarations name the columns, and rows as lines of CSV.

A value may stand in quotes of either kind, with backslashes before quotes in it, and blanks around it do not count; a
line that begins with % is a comment.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from laconic.data.errors import MalformedFile
from laconic.data.files import Limits

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{]+)\s*(.*)", re.IGNORECASE)
_VALUE = re.compile(rf"""\s*+({_QUOTED}|[^\s,'"%{{}}](?:[^,'"%{{}}]*[^\s,'"%{{}}])?+|)\s*+(,|$)""")
_ODD = re.compile(r"""[\s'"%{}]""")
_ODD_BYTES = re.compile(rb"""['"%{}]|\r(?!\n)""")
_BLANK = re.compile(rb"[ \t\v\f]")
_AT_COMMAS = re.compile(rb"(?<![ \t\v\f])[ \t\v\f]*+,[ \t\v\f]*+")  # from where a run of blanks begins, or each
_AT_ENDS = re.compile(rb"(?<![ \t\v\f])[ \t\v\f]++(?=\r?$)|^[ \t\v\f]++", re.MULTILINE)  # of them is looked at
_BLOCK_BYTES = 2**20
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


def read_header(path: Path, lines: Iterator[str]) -> tuple[dict[str, str], int]:
    """The declared type of each attribute, by name and in order, and the number of lines up to @data."""
    kinds: dict[str, str] = {}
    for n, line in enumerate(lines, 1):
        word = line.strip()
        found, start = _ATTRIBUTE.match(word), word[:1]
        if word.lower() == "@data":
            return kinds, n
        if found and (name := _plain(found[1])) in kinds:
            raise MalformedFile(path, f"a second attribute {name!r}; rename one", line=n)
        if found:
            kinds[_plain(found[1])] = found[2].lower()
        elif word and start != "%" and not word.lower().startswith("@relation"):
            raise MalformedFile(path, f"expected @attribute or @data, found {word[:80]!r}", line=n)
    raise MalformedFile(path, "expected a line @data, found none")


@dataclass(eq=False)
class Rows:
    """The rows of an ARFF file as a CSV file. Blocks without quotes and comments, as most are, are not taken apart.

    file     open at its beginning
    n_lines  read so far; at first, those of the header
    """

    path: Path
    file: IO[bytes]
    limits: Limits
    n_lines: int
    held: bytes = b""

    def __post_init__(self) -> None:
        for _ in range(self.n_lines):
            self.file.readline()

    def read(self, n: int) -> bytes:
        """The next n bytes; fewer at the end."""
        while len(self.held) < n and (block := self.file.read(_BLOCK_BYTES)):
            self.held += self._as_csv(block + self.file.readline(self.limits.line_bytes + 1))
        read, self.held = self.held[:n], self.held[n:]
        return read

    def _as_csv(self, block: bytes) -> bytes:
        if len(block) <= self.limits.line_bytes and not _ODD_BYTES.search(block):
            self.n_lines += block.count(b"\n")
            return _AT_ENDS.sub(b"", _AT_COMMAS.sub(b",", block)) if _BLANK.search(block) else block
        made = []
        for line in block.splitlines(keepends=True):
            self.n_lines += 1
            self.limits.check("line_bytes", len(line), self.path, f"line {self.n_lines} is longer")
            made.append(csv_line(self.path, self.n_lines, line.decode("utf-8", "surrogateescape")))
        return "".join(made).encode("utf-8", "surrogateescape")


def csv_line(path: Path, n: int, line: str) -> str:
    """Line n of the data as a line of CSV: an empty one for a comment, so that lines keep their numbers.

    >>> csv_line(Path("a.arff"), 9, "1.5 , 'b, c',\\"d\\"\\n")
    '1.5,"b, c",d\\n'
    """
    text = line.strip()
    if not _ODD.search(text) or text.startswith("%"):
        return f"{'' if text.startswith('%') else text}\n"
    if text.startswith("{"):
        raise MalformedFile(path, "sparse ARFF is not read; save it as LIBSVM", line=n)
    values, end, more = list[str](), 0, True
    while more:
        found = _VALUE.match(text, end)
        if found is None:
            what = "expected a value (with quotes, commas, % and braces in quotes only), found "
            raise MalformedFile(path, f"{what}{text[end:].strip()[:80]!r}", line=n, column=len(values) + 1)
        values.append(_plain(found[1]))
        end, more = found.end(), found[2] == ","
    return ",".join(map(_field, values)) + "\n"


def _field(value: str) -> str:
    bare = value and "," not in value and not _ODD.search(value)
    return value if bare else '"' + value.replace('"', '""') + '"'


def _plain(word: str) -> str:
    """A word without its quotes, if it has any."""
    if word[:1] not in ("'", '"'):
        return word
    return re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[1]), word[1:-1])
