"""The certificate of a server: for whom it is made, when it is renewed, who trusts it."""

from __future__ import annotations

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from gangline.certificates import Bundle, issue, merged, server_names, why_renew

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
NAMES = server_names("hook", "gpu")


def made(now: datetime = NOW, days: int = 365, trusted: bytes = b"") -> Bundle:
    return issue(NAMES, now, days * DAY, trusted)


def verified(bundle: Bundle, name: str, now: datetime) -> bool:
    """Whether a client that trusts the bundle's authorities takes its certificate for this name."""
    store = Store(x509.load_pem_x509_certificates(bundle.authorities))
    verifier = PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(name))
    try:
        verifier.verify(x509.load_pem_x509_certificate(bundle.certificate), [])
    except VerificationError:
        return False
    return True


def count(pem: bytes) -> int:
    return pem.count(b"BEGIN CERTIFICATE")


def test_a_service_has_the_four_names_of_its_cluster() -> None:
    assert NAMES == ("hook", "hook.gpu", "hook.gpu.svc", "hook.gpu.svc.cluster.local")


@pytest.mark.parametrize("name", NAMES)
def test_a_strict_client_takes_it_for_each_name(name: str) -> None:
    assert verified(made(), name, NOW)


@pytest.mark.parametrize(
    ("name", "now"),
    [("other.gpu.svc", NOW), ("hook.gpu.svc", NOW + 366 * DAY), ("hook.gpu.svc", NOW - DAY)],
    ids=["name", "late", "early"],
)
def test_a_strict_client_takes_it_for_no_other_name_or_time(name: str, now: datetime) -> None:
    assert not verified(made(), name, now)


def test_openssl_shakes_hands_with_it(tmp_path: Path) -> None:
    bundle = issue(NAMES, datetime.now(UTC), DAY)
    for name, content in bundle.data.items():
        (tmp_path / name).write_bytes(content)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    client = ssl.create_default_context(cadata=bundle.authorities.decode())
    near, far = socket.socketpair()
    with near, far:
        answering = threading.Thread(target=lambda: server.wrap_socket(far, server_side=True).close())
        answering.start()
        with client.wrap_socket(near, server_hostname="hook.gpu.svc") as talking:
            version = talking.version()
        answering.join()

    assert version == "TLSv1.3"


def test_the_longest_names_of_a_namespace_and_a_service_fit() -> None:
    names = server_names("s" * 63, "n" * 63)

    assert why_renew(issue(names, NOW, 365 * DAY), names, NOW, 30 * DAY) is None


@pytest.mark.parametrize(
    ("passed", "why"),
    [
        (timedelta(), None),
        (335 * DAY - timedelta(seconds=1), None),
        (335 * DAY, "it ended on 2027-03-01"),
        (400 * DAY, "it ended on 2027-03-01"),
    ],
    ids=["new", "a-second-before", "at-the-boundary", "expired"],
)
def test_it_is_renewed_from_thirty_days_before_its_end(passed: timedelta, why: str | None) -> None:
    assert why_renew(made(), NAMES, NOW + passed, 30 * DAY) == why


def test_it_is_renewed_if_it_is_not_valid_yet_because_a_clock_was_ahead() -> None:
    early = NOW - timedelta(hours=1)

    assert not verified(made(), NAMES[0], early)
    assert why_renew(made(), NAMES, early, 30 * DAY) == "it was valid only from 2026-03-01 11:55"
    assert why_renew(made(), NAMES, NOW - timedelta(minutes=4), 30 * DAY) is None


def test_it_is_renewed_before_its_authority_ends() -> None:
    long = made(days=365)
    short = made(days=10)

    assert long.expires - short.expires == 355 * DAY
    assert why_renew(made(days=10), NAMES, NOW, 30 * DAY) == "it ended on 2026-03-11"


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (Bundle(b"", b"", b""), "it could not be read"),
        (Bundle(b"no PEM", made().key, made().authorities), "it could not be read"),
        (Bundle(made().certificate, b"no PEM", made().authorities), "it could not be read"),
    ],
    ids=["empty", "certificate", "key"],
)
def test_what_cannot_be_read_is_renewed(broken: Bundle, why: str) -> None:
    assert why_renew(broken, NAMES, NOW, 30 * DAY) == why


def test_an_encrypted_key_counts_as_unreadable() -> None:
    good = made()
    key = serialization.load_pem_private_key(good.key, None)
    secret = serialization.BestAvailableEncryption(b"secret")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)

    assert why_renew(Bundle(good.certificate, pem, good.authorities), NAMES, NOW, DAY) == "it could not be read"


def test_parts_that_do_not_belong_together_are_renewed() -> None:
    one, other = made(), made()
    foreign_key = Bundle(one.certificate, other.key, one.authorities)
    foreign_authority = Bundle(one.certificate, one.key, other.authorities)

    assert why_renew(foreign_key, NAMES, NOW, DAY) == "the key did not belong to it"
    assert why_renew(foreign_authority, NAMES, NOW, DAY) == "nobody in ca.crt had signed it"


def test_a_certificate_for_another_namespace_is_renewed() -> None:
    assert why_renew(made(), server_names("hook", "other"), NOW, DAY) == "it was not for hook.other"


def test_after_a_renewal_the_old_and_the_new_certificate_are_trusted() -> None:
    old = made()
    new = made(NOW + 340 * DAY, trusted=old.authorities)
    still_old = Bundle(old.certificate, old.key, new.authorities)

    assert count(new.authorities) == 2
    assert verified(new, NAMES[0], NOW + 341 * DAY) and verified(still_old, NAMES[0], NOW + 341 * DAY)


def test_an_authority_that_has_ended_is_dropped_at_the_next_renewal() -> None:
    old = made()
    new = made(NOW + 365 * DAY, trusted=old.authorities)

    assert count(made(NOW + 364 * DAY, trusted=old.authorities).authorities) == 2
    assert count(new.authorities) == 1 and new.authorities != old.authorities


def test_merging_keeps_the_order_takes_each_once_and_leaves_garbage_out() -> None:
    a, b = made().authorities, made().authorities

    assert merged(NOW, b"garbage\n", a, b"", b + a) == a + b
