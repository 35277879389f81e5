"""A file is written in full or not at all."""

import pytest

from laconic.bench import replacing


def test_file_takes_its_place(tmp_path):
    target = tmp_path / "rows.json"
    target.write_text("old")
    with replacing(target) as file:
        file.write("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_leaves_the_old_file(tmp_path):
    target = tmp_path / "rows.json"
    target.write_text("old")
    with pytest.raises(KeyError), replacing(target) as file:
        file.write({}["half"])
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
