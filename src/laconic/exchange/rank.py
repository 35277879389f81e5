"""What `start_ranks` starts: `python -m laconic.exchange.rank`, with a job on standard input."""

import json
import os
import sys
import threading
from typing import IO

from laconic.exchange.launch import Job, run_job


def main() -> None:
    """Read the job, do it, write the result as a line of JSON; end at once when the starter is gone."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    job = Job(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_starter, args=(sys.stdin,), daemon=True).start()

    def tell(label: str) -> None:
        if job.rank == 0:
            _write(answers, {"doing": label})

    _write(answers, {"result": run_job(job, tell)})
    answers.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of process groups may still be about; the result is out


def _end_with_starter(stdin: IO[str]) -> None:
    stdin.read()
    os._exit(1)


def _write(answers: IO[str], event: dict[str, object]) -> None:
    answers.write(json.dumps(event) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
