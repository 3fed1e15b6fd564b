"""The section of `gangline explain` about what would let a waiting pod or gang start, in words."""

from __future__ import annotations

from rich.console import Console

from gangline.remedies import Remedies


def show_remedies(found: Remedies | None, why_not: str | None, screen: Console) -> None:
    """Print the remedies, the cheapest first. Nothing is printed without remedies, or with --why-not (`why_not`)."""
    if found is None or found.note or why_not is not None:
        return
    screen.print()
    if not found.remedies and not found.tried:
        screen.print("No change was found that could be tried.")
    elif not found.remedies and found.tried == 1:
        screen.print("The one change that was tried would not let it start.")
    elif not found.remedies:
        screen.print(f"No single change of {found.tried} that were tried would let it start.")
    else:
        screen.print("What would let it start (each alone is enough, the cheapest first):")
    for number, remedy in enumerate(found.remedies, 1):
        screen.print(f"  {number}. {remedy.sentence}", markup=False, highlight=False)
    if not found.is_complete:
        screen.print("  The search was not finished: attempts or time ran out. There may be others.")
