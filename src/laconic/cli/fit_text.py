"""What `laconic fit` prints."""

from collections.abc import Iterator, Mapping
from typing import Any

NAMES = {"accuracy": "accuracy", "log_loss": "log-loss", "r2": "R²", "mse": "mean squared error", "d2": "D²"}


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """A report as lines of text."""
    classes = report["classes"]
    what = report["family"] + (f", {len(classes)} classes ({_some(classes)})" if classes else "")
    yield f"{report['data']}: {report['n_rows']:,} rows × {report['n_features']:,} columns; {what}"
    s = report["settings"]
    ranks = f" on {report['ranks']} ranks" if report["ranks"] > 1 else ""
    yield (
        f"ran {report['ran']}{ranks}; batches of {s['batch_size']}, {s['learning_rate']} steps of {s['eta0']:.3g}, "
        f"alpha {s['alpha']:g}" + (", standardized columns" if s["standardize"] else "")
    )
    if report["recipe_explained"] is not None:
        yield f"recipe: {report['recipe_explained']}"
    yield f"{report['epochs']} epochs, {report['iterations']:,} iterations: {report['because']}"
    yield f"loss {report['loss']:.6g}; {metrics(report['metrics'])}"
    if report["test_metrics"] is not None:
        yield f"test: {metrics(report['test_metrics'])}"
    sent = (
        f"; {report['messages']:,} messages, {report['bytes_sent']:,} bytes sent a rank" if report["ranks"] > 1 else ""
    )
    yield f"{report['seconds']:.2f} s, of these {report['fit_seconds']:.2f} s fitting{sent}"
    yield f"model: {report['model']}"


def metrics(found: Mapping[str, float]) -> str:
    """Figures in a line.

    >>> metrics({"accuracy": 0.85, "log_loss": 0.324})
    'accuracy 0.8500, log-loss 0.3240'
    """
    return ", ".join(f"{NAMES.get(name, name)} {value:.4f}" for name, value in found.items())


def _some(classes: list[Any]) -> str:
    return ", ".join(map(str, classes[:4])) + (", ..." if len(classes) > 4 else "")
