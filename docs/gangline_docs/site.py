"""Every page that the site has beside those written by hand: where it stands, and what writes it."""

from __future__ import annotations

from collections.abc import Callable

from gangline_docs import (
    commands,
    configuration,
    copies,
    crds,
    differences,
    extending,
    glances,
    metrics,
    names,
    plugins,
    rights,
)

PAGES: dict[str, Callable[[], str]] = {
    "reference/resources.md": crds.render,
    "reference/annotations.md": names.render,
    "reference/configuration.md": configuration.render,
    "reference/plugins.md": plugins.render,
    "reference/extending.md": extending.render,
    "reference/metrics.md": metrics.render,
    "reference/commands.md": commands.render,
    "reference/values.md": copies.chart_values,
    "benchmarks.md": copies.benchmarks,
    "changelog.md": copies.changelog,
    "security.md": copies.security,
}

COPIED = {
    "benchmarks.md": "benchmarks/README.md",
    "changelog.md": "CHANGELOG.md",
    "reference/values.md": "charts/gpu-scheduler/values.yaml",
    "security.md": "SECURITY.md",
}
"""The files of the repository that pages are copies of, for the links by which readers edit a page."""

PARTS: dict[str, Callable[[], str]] = {
    "packing_figures": copies.packing_figures,
    "fragmentation_table": copies.fragmentation_table,
    "plugin_rules": copies.plugin_rules,
    "scheduler_rights": rights.scheduler,
    "agent_rights": rights.agent,
    "webhook_rights": rights.webhook,
    "difference_output": differences.output,
    "status_output": glances.status,
    "topology_output": glances.topology,
}
"""What stands in pages for `{{ NAME }}`."""


def filled(markdown: str) -> str:
    """A page written by hand, with its parts."""
    for name, render in PARTS.items():
        marker = f"{{{{ {name} }}}}"
        if marker in markdown:
            markdown = markdown.replace(marker, render())
    return markdown
