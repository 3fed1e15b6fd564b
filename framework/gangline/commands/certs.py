"""`gangline certs`: creates a webhook's certificates, and keeps them up to date on a cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from gangline import certificates
from gangline.certificates.bundle import KEY
from gangline.certificates.signing import write_secret
from gangline.clock import SystemClock
from gangline.commands import options
from gangline.commands.options import Connection
from gangline.commands.reaching import reached
from gangline.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from gangline.process import interrupting
from gangline.process.rotating import Registration, Wanted, ensure

LONGEST = 3650
"""The longest validity of a certificate, in days."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _label(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no name for a {parameter.name}")
    return value


_NAMESPACE = click.option("--namespace", required=True, callback=_label, help="Namespace of the Service.")
_SERVICE = click.option("--service", required=True, callback=_label, help="The Service that the API server calls.")
_DAYS = click.option(
    "--days", type=click.IntRange(1, LONGEST), default=365, show_default=True, help="How long a certificate is valid."
)


@click.group()
def certs() -> None:
    """Create and renew the certificates of the webhook."""


@certs.command("ensure", short_help="Create the certificate, or renew it if needed.")
@_NAMESPACE
@_SERVICE
@click.option("--secret", required=True, help="The Secret with tls.crt, tls.key and ca.crt; created if missing.")
@click.option("--mutating-webhook", help="The MutatingWebhookConfiguration to write the caBundle into.")
@click.option("--validating-webhook", help="The ValidatingWebhookConfiguration to write the caBundle into.")
@_DAYS
@click.option(
    "--renew-before",
    type=click.IntRange(min=0),
    default=30,
    show_default=True,
    help="Renew a certificate so many days before it expires.",
)
@options.connection
def ensure_(
    connection: Connection,
    namespace: str,
    service: str,
    secret: str,
    mutating_webhook: str | None,
    validating_webhook: str | None,
    days: int,
    renew_before: int,
) -> None:
    """Create the certificate, or renew it if it is broken, is for other names or expires soon.

    You may run this command as often as you like: it does not change a valid certificate.
    """
    if renew_before >= days:
        raise click.UsageError(f"--renew-before {renew_before} must be less than --days {days}")
    pairs = ((MUTATING_WEBHOOKS, mutating_webhook), (VALIDATING_WEBHOOKS, validating_webhook))
    registrations = [Registration(resource, name) for resource, name in pairs if name]
    lifetime, margin = timedelta(days=days), timedelta(days=renew_before)
    wanted = Wanted(namespace, service, secret, registrations, lifetime, margin)
    click.echo(interrupting.run(_ensure(connection, wanted)))


async def _ensure(connection: Connection, wanted: Wanted) -> str:
    async with reached(connection) as there:
        return await ensure(there.client, wanted, SystemClock())


@certs.command(short_help="Write a new certificate into a folder.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="The folder to write to.")
@_NAMESPACE
@_SERVICE
@_DAYS
def make(out: Path, namespace: str, service: str, days: int) -> None:
    """Write tls.crt, tls.key and ca.crt of a new certificate into a folder."""
    names = certificates.server_names(service, namespace)
    bundle = certificates.issue(names, datetime.now(UTC), timedelta(days=days))
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in bundle.data.items():
            if name == KEY:
                write_secret(out / name, content)
            else:
                (out / name).write_bytes(content)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    click.echo(f"{_joined(list(bundle.data))} in {out}: for {names[2]}, valid until {bundle.expires:%Y-%m-%d}")


def _joined(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
