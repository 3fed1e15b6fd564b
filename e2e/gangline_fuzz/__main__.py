"""Looks for inputs that stop something: `python -m gangline_fuzz run`, and `replay FILE` for one that did."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

import click

from gangline_fuzz import inputs, running
from gangline_fuzz.budget import measured
from gangline_fuzz.rooms import play

FOLDER = Path(".fuzz")


@click.group()
def cli() -> None:
    """Odd inputs, and what must hold after each."""


@cli.command()
@click.option("--minutes", type=click.FloatRange(min=0), default=60.0, show_default=True)
@click.option("--seed", type=int, default=None, help="Of the first round. Default: another one at each run.")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, show_default=True, help="Where failures go.")
def run(minutes: float, seed: int | None, folder: Path) -> None:
    """Try random inputs for so long; exit 1 if one of them failed."""
    first = int(time.time()) if seed is None else seed
    tally = running.run(minutes, first, folder, lambda text: click.echo(text))
    click.echo(f"\nall: {tally}")
    for fault, path in tally.saved.items():
        click.echo(f"{path}: {fault}")
    sys.exit(1 if tally.failures else 0)


@cli.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--log", is_flag=True, help="Show what the scheduler logs.")
def replay(files: tuple[Path, ...], log: bool) -> None:
    """Play saved inputs again; exit 1 if one of them fails."""
    logging.basicConfig(level=logging.INFO if log else logging.CRITICAL)
    failed = False
    for path in files:
        with measured() as spent:
            found = play(inputs.read(path))
        failed = failed or found is not None
        said = "holds" if found is None else f"{found.signature} after input {found.at}\n{found.said}"
        click.echo(f"{path} ({spent.seconds:.1f} s, {spent.mib:.0f} MiB): {said}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    cli(prog_name="python -m gangline_fuzz")
