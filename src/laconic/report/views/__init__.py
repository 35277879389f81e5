"""Views: what to show of a document, by the suite that it is of."""

from collections.abc import Callable

from laconic.report.blocks import Section
from laconic.report.values import Row, rows_in
from laconic.report.views import glm as glm_views
from laconic.report.views import parts
from laconic.report.views import plan as plan_views
from laconic.report.views.analyze import analyze
from laconic.report.views.codec import codec
from laconic.report.views.ddp import ddp
from laconic.report.views.decentralised import decentralised
from laconic.report.views.demo import demo
from laconic.report.views.exchange import exchange
from laconic.report.views.fit import fit
from laconic.report.views.kernels import kernels
from laconic.report.views.papers import papers

View = Callable[[Row], list[Section]]
VIEWS: dict[str, View] = {
    "analyze": analyze,
    "codec": codec,
    "ddp": ddp,
    "decentralised": decentralised,
    "demo": demo,
    "exchange": exchange,
    "fit": fit,
    "glm": glm_views.glm,
    "glm-device": glm_views.device,
    "glm-time-to": glm_views.time_to,
    "kernels": kernels,
    "papers-ca-sgd": papers,
    "papers-nuqsgd": papers,
    "plan": plan_views.plan,
    "plan-made": plan_views.made,
}
"""One line a suite; a suite that is not here is shown as it is."""


def view(suite: str) -> View:
    """How to show a suite; of one that nobody knows, its options and its rows."""
    return VIEWS.get(suite, lambda document: [unknown(suite, document)])


def unknown(suite: str, document: Row) -> Section:
    """A plain table of the rows."""
    rows = rows_in(document)
    found = parts.everything(rows, f"{len(rows)} rows")
    return Section(suite, [*parts.options(document), *parts.goals(document), *found])
