"""Fails if Gangline has become more than a tenth more expensive than the bars say (bars.json).

    python benchmarks/bench_check.py [--renew]

Most figures are counts, which are the same on a busy machine: instructions of Python's virtual machine, bytes, modules.
Two are CPU times, as multiples of that of fixed work in the same process; they may differ more. `--renew` writes the
figures as the new bars.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from checking import bars, work

BARS = Path(__file__).with_name("bars.json")
SEED = "0"


@click.command()
@click.option("--renew", is_flag=True, help="Write the figures as the new bars.")
def main(renew: bool) -> None:
    """Measure, compare, print."""
    if os.environ.get("PYTHONHASHSEED") != SEED:  # the order of sets, and so the number of instructions, depends on it
        environment = {**os.environ, "PYTHONHASHSEED": SEED}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)
    found = work.figures()
    if renew:
        BARS.write_text(json.dumps(bars.made(found, bars.this_python()), indent=1) + "\n")
    verdicts = bars.judged(found, bars.read(BARS.read_text()), bars.this_python())
    table = Table("", "bar", "now", "ratio", "", box=None)
    for each in verdicts:
        table.add_row(each.name, f"{each.bar:,.2f}", f"{each.now:,.2f}", f"{each.ratio:.3f}", each.says())
    Console(width=110).print(table)
    if any(each.is_worse for each in verdicts):
        sys.exit("Gangline has become more expensive. If that is meant: make bench-bars, and say why in the commit.")


if __name__ == "__main__":
    main()
