"""docs/several-machines.md as written: torchrun on two emulated hosts with names of their own; manifests that parse."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from laconic.exchange.emulated_network import available, emulated_network
from laconic.glm.model import Model

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "several-machines.md").read_text()
COMMANDS = re.findall(r"^torchrun .*$", PAGE, re.MULTILINE)
TOOLS = {
    "torchrun": [sys.executable, "-m", "torch.distributed.run"],
    "laconic": [sys.executable, "-c", "from laconic_command import main; main()"],
}
reason = available() or ("" if shutil.which("unshare") else "needs unshare")
needs_hosts = pytest.mark.skipif(bool(reason), reason=f"an emulated network {reason}")


@contextmanager
def named_hosts(folder: Path):
    """Two emulated hosts as prefixes of commands; each has a name, and knows the other's.

    In its namespace of names (`unshare --uts`) a host is called host0 or host1; of files, its own /etc/hosts.
    """
    with emulated_network(2, "1gbit") as hosts:
        names = folder / "hosts"
        names.write_text("127.0.0.1 localhost\n" + "".join(f"{h.address} host{i}\n" for i, h in enumerate(hosts)))
        own = f'mount --bind {names} /etc/hosts && hostname host$0 && exec "$@"'
        yield [[*h.command, "unshare", "--uts", "--mount", "sh", "-c", own, str(i)] for i, h in enumerate(hosts)]


def run_on_both(commands, folder, named):
    """What each host said, and with what status it ended."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    environment |= {} if named else {"GLOO_SOCKET_IFNAME": "eth0"}
    with named_hosts(folder) as hosts:
        runs = [
            subprocess.Popen([*host, *command], cwd=folder, env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for host, command in zip(hosts, commands, strict=True)
        ]  # fmt: skip
        try:
            return [(run.communicate()[0], run.returncode) for run in runs]
        finally:
            for run in runs:
                run.kill()


def words(command: str) -> list[str]:
    """A command of the page, as it is run here."""
    found = [part for word in shlex.split(command) for part in TOOLS.get(word, [word])]
    return [str(ROOT / "examples" / word) if word.endswith(".py") else word for word in found]


def only(part: str, without: str = " is_host") -> str:
    (command,) = [command for command in COMMANDS if part in command and without not in command]
    return command


@needs_hosts
@pytest.mark.parametrize(
    ("ranks", "teams"), [(1, ""), *(pytest.param(2, x, marks=pytest.mark.exhaustive) for x in ("", " --teams 2"))]
)
def test_fit_runs_on_two_hosts(tmp_path, ranks, teams):
    """As on the page, and with one rank per host."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 8))
    rows = np.c_[X, X @ rng.standard_normal(8) > 0]
    header = ",".join([f"x{j}" for j in range(8)] + ["y"])
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header=header, comments="")
    command = words(only("laconic fit").replace("node 2", f"node {ranks}") + " --max-iter 3" + teams)
    (said, first), (_, second) = run_on_both([command] * 2, tmp_path, named=True)
    assert (first, second) == (0, 0), said
    assert ("2 teams of 2 ranks" if teams else f"on {2 * ranks} ranks") in said
    assert Model.load(tmp_path / "model.safetensors").metrics["accuracy"] > 0.9


@needs_hosts
@pytest.mark.exhaustive
@pytest.mark.parametrize("named", [True, False])
def test_ddp_runs_on_two_hosts(tmp_path, named):
    commands = [only("ddp_classifier.py")] * 2 if named else [c for c in COMMANDS if "is_host" in c]
    (said, first), (_, second) = run_on_both(list(map(words, commands)), tmp_path, named)
    assert (first, second) == (0, 0), said
    assert "times as many" in said


@needs_hosts
@pytest.mark.exhaustive
def test_plan_measures_the_link_between_two_hosts(tmp_path):
    (said, first), (_, second) = run_on_both([words(only("laconic plan"))] * 2, tmp_path, named=True)
    assert (first, second) == (0, 0), said
    (later,) = re.findall(r"^laconic plan .*$", PAGE, re.MULTILINE)
    done = subprocess.run(words(later), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "bit/s" in done.stdout


def test_manifests_are_yaml():
    yaml = pytest.importorskip("yaml")
    found = [yaml.safe_load(text) for text in re.findall(r"```yaml.*?\n(.*?)```", PAGE, re.DOTALL)]
    assert [one["kind"] for one in found] == ["TrainJob", "PyTorchJob"]
    containers = found[1]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    commands = [found[0]["spec"]["trainer"]["command"], containers[0]["command"]]
    assert all(command[command.index("laconic") + 1] == "fit" for command in commands)
