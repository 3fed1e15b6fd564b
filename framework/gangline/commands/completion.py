"""`gangline completion`: scripts by which shells complete commands and options, and completions for kubectl."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
from click.shell_completion import ShellComplete, get_completion_class

VARIABLE = "_GANGLINE_COMPLETE"
"""The environment variable by which a script asks `gangline` for completions."""
NO_FILES, FILES = 4, 0
"""Directives of cobra, kubectl's command-line library, that say whether to complete the names of files as well."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script by which a shell completes commands and options.

    \b
    bash: source <(gangline completion bash)      in ~/.bashrc
    zsh:  source <(gangline completion zsh)       in ~/.zshrc, after compinit
    fish: gangline completion fish | source       in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    assert found is not None, shell
    click.echo(found(context.find_root().command, {}, "gangline", VARIABLE).source())


def for_kubectl(cli: click.Command, words: Sequence[str]) -> Iterator[str]:
    """The completions, line by line, for kubectl: it runs `kubectl_complete-gangline` with the words after its own."""
    *before, incomplete = words or [""]
    items = ShellComplete(cli, {}, "kubectl gangline", VARIABLE).get_completions(list(before), incomplete)
    for item in items:
        if item.type == "plain":
            yield f"{item.value}\t{item.help}" if item.help else item.value
    yield f":{FILES if any(item.type != 'plain' for item in items) else NO_FILES}"
