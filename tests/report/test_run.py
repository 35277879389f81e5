"""Files and folders: what is a run, and what is said of what is none."""

import json

import pytest

from laconic.report.runs import NotARun, read_run, read_runs

from .documents import DOCUMENTS


@pytest.mark.parametrize("suite", DOCUMENTS)
def test_every_document_is_known_for_what_it_is(suite, tmp_path):
    path = tmp_path / "a.run.json"
    path.write_text(json.dumps(DOCUMENTS[suite]))
    run = read_run(path)
    assert (run.name, run.suite) == ("a.run", suite)


WRONG = {
    "text": (b"once upon a time", "line 1"),
    "nothing": (b"", "not JSON"),
    "cut off": (b'{"suite": "glm", "rows": [', "not JSON"),
    "bytes": (b"\xff\xfe\x00", "UTF-8"),
    "too deep": (b"[" * 200_000, "not JSON"),
    "a long number": (b'{"a": ' + b"1" * 5000 + b"}", "not JSON"),
    "a list": (b"[1]", "a JSON list"),
    "a number": (b"3", "a JSON number"),
    "null": (b"null", "a JSON null"),
    "no suite": (b'{"rows": []}', "rows"),
    "no rows": (b'{"suite": "glm"}', "suite"),
    "suite of another kind": (b'{"suite": 3, "rows": []}', "suite"),
    "empty object": (b"{}", "none"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_run_is_named_with_what_was_expected(case, tmp_path):
    content, said = WRONG[case]
    path = tmp_path / "wrong.json"
    path.write_bytes(content)
    with pytest.raises(NotARun) as caught:
        read_run(path)
    for words in (str(path), said, "expected a JSON document that `laconic bench`"):
        assert words in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(NotARun, match=r"cannot read .*none\.json: No such file"):
        read_runs([tmp_path / "none.json"])


def test_numbers_that_are_none_are_read_as_missing(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"suite": "x", "rows": [{"loss": NaN, "gap": -Infinity}]}')
    assert read_run(path).document["rows"] == [{"loss": None, "gap": None}]


def test_of_a_folder_the_runs_in_order_and_the_rest_named(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(json.dumps(DOCUMENTS["glm"]))
    (tmp_path / "package.json").write_text('{"name": "other"}')
    (tmp_path / "notes.txt").write_text("no")
    found, passed_over = read_runs([tmp_path])
    assert [run.name for run in found] == ["a", "b"]
    assert [name for name, _ in passed_over] == [str(tmp_path / "package.json")]


def test_a_folder_without_runs(tmp_path):
    with pytest.raises(NotARun, match=r"no \.json file in this folder is a run"):
        read_runs([tmp_path])
