"""What holds of every command: JSON that is also what it writes, tables that fit, mistakes in one line."""

import json

import pytest


@pytest.fixture
def published(command_line, capsys, tmp_path):
    """Run a command with --json and --output; the document, which must be the same in both."""

    main, _ = command_line

    def run(command):
        target = tmp_path / "rows.json"
        assert main([*command, "--json", "--output", str(target)]) == 0
        out, err = capsys.readouterr()
        assert not err
        assert json.loads(target.read_text()) == json.loads(out)
        assert list(tmp_path.iterdir()) == [target]
        return json.loads(out)

    return run


@pytest.fixture
def printed(command_line, capsys, monkeypatch):
    """Run a command on a terminal of so many columns; what it prints, where no line is longer and no cell cut short."""

    main, _ = command_line

    def run(command, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(command) == 0
        out, err = capsys.readouterr()
        assert not err
        assert "…" not in out
        assert max(len(line.rstrip()) for line in out.splitlines()) <= columns
        return out

    return run


@pytest.fixture
def complains(command_line, capsys):
    """Run a command that must fail with exit code 2 and one line on stderr, which says these words."""

    main, name = command_line

    def run(command, said):
        assert main(command) == 2
        out, err = capsys.readouterr()
        assert not out
        assert err.startswith(f"{name}: ")
        assert err.count("\n") == 1
        assert said in err

    return run
