"""The programs: what they are is imported after Ctrl-C has been taken care of, so that no key at the start tells a
traceback.
"""

from gangline.process import interrupting


def main() -> None:
    """The program gangline."""
    _run("gangline.main", "main")


def kubectl() -> None:
    """The program kubectl-gangline."""
    _run("gangline.main", "kubectl")


def kubectl_complete() -> None:
    """The program kubectl_complete-gangline."""
    _run("gangline.main", "kubectl_complete")


def agent() -> None:
    """The program gangline-agent."""
    _run("gangline_agent.main", "main")


def webhook() -> None:
    """The program gangline-webhook."""
    _run("gangline_webhook.main", "main")


def _run(module: str, name: str) -> None:
    interrupting.end_at_once()
    from importlib import import_module

    try:
        getattr(import_module(module), name)()
    finally:
        interrupting.end_at_once()
