"""Bootstrap of the certificate: issued, shared, trusted, renewed."""

from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from rules_engine.server.cluster.connection import ApiError, Connection
from rules_engine.server.timing import rfc3339
from rules_engine.server.tls.bootstrap import (
    PREVIOUS_CA_LIFETIME,
    RENEW_DAYS,
    TRUST_DELAY,
    VALID_DAYS,
    Bootstrap,
    BootstrapNames,
)
from rules_engine.server.tls.identity import Identity
from tests.support.objects import Objects, objects
from tests.support.operating import until, until_ended

PLACE = BootstrapNames(namespace="gpu", secret="tls", service="rules.gpu.svc", webhooks="rules")
SECRET = "/api/v1/namespaces/gpu/secrets/tls"
WEBHOOKS = [
    f"/apis/admissionregistration.k8s.io/v1/{kind}/rules"
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
]
START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def kept() -> Iterator[Objects]:
    """API server with the objects of the chart: an empty Secret and two configurations."""
    with objects() as found:
        found.put(SECRET, {"kind": "Secret", "metadata": {"name": "tls"}, "type": "Opaque"})
        for path in WEBHOOKS:
            hooks = [{"name": "a", "clientConfig": {"service": {"name": "rules"}}}, {"name": "b", "clientConfig": {}}]
            found.put(path, {"metadata": {"name": "rules"}, "webhooks": hooks})
        yield found


class Replica:
    """A Bootstrap, its clock and the identities that it serves."""

    def __init__(self, kept: Objects) -> None:
        def configure(configuration: Any) -> None:
            configuration.host = kept.url
            self.configured += 1

        self.configured = 0
        self.now = START
        self.served: list[Identity] = []
        self.bootstrap = Bootstrap(Connection(configure), PLACE, self.served.append, clock=lambda: self.now)

    def reconcile(self, after: timedelta = timedelta()) -> None:
        self.now += after
        self.bootstrap.reconcile()

    @property
    def certificate(self) -> bytes:
        return self.served[-1].certificate


def trusted(kept: Objects) -> list[x509.Certificate]:
    """Return the CAs that the API server trusts, which are the same for every webhook."""
    bundles = {hook["clientConfig"]["caBundle"] for path in WEBHOOKS for hook in kept.get(path)["webhooks"]}
    [bundle] = bundles
    return x509.load_pem_x509_certificates(b64decode(bundle))


def trusts(kept: Objects, certificate: bytes, now: datetime) -> bool:
    """Return True if an API server accepts the certificate."""
    verifier = PolicyBuilder().store(Store(trusted(kept))).time(now).build_server_verifier(x509.DNSName(PLACE.service))
    try:
        verifier.verify(x509.load_pem_x509_certificate(certificate), [])
    except x509.verification.VerificationError:
        return False
    return True


def test_the_first_replica_issues_a_certificate_for_all_replicas(kept: Objects) -> None:
    replica, two = Replica(kept), Replica(kept)
    replica.reconcile()
    two.reconcile()
    assert replica.served == two.served
    assert trusts(kept, replica.certificate, START)
    assert len(trusted(kept)) == 1
    assert replica.served[0].not_after == START + timedelta(days=VALID_DAYS)
    replica.reconcile()
    assert len(replica.served) == 1, "nothing has changed"
    assert kept.get(WEBHOOKS[0])["webhooks"][0]["clientConfig"]["service"] == {"name": "rules"}


def test_no_certificate_is_served_before_its_ca_is_trusted(kept: Objects) -> None:
    replica = Replica(kept)
    kept.refuse[WEBHOOKS[1]] = 403
    with pytest.raises(ApiError, match="403"):
        replica.reconcile()
    assert "tls.crt" in kept.get(SECRET)["data"]
    assert not replica.served
    del kept.refuse[WEBHOOKS[1]]
    replica.reconcile()
    assert trusts(kept, replica.certificate, START)


def test_replicas_that_start_at_once_agree(kept: Objects) -> None:
    replicas = [Replica(kept) for _ in range(6)]
    together = Barrier(len(replicas))

    def begin(replica: Replica) -> None:
        together.wait()
        replica.reconcile()

    threads = [Thread(target=begin, args=(replica,)) for replica in replicas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({replica.certificate for replica in replicas}) == 1
    assert trusts(kept, replicas[0].certificate, START)


def test_every_served_certificate_is_trusted_during_a_renewal(kept: Objects) -> None:
    replicas = [Replica(kept) for _ in range(3)]
    seen: dict[bytes, datetime] = {}
    most = 0
    while replicas[0].now < START + timedelta(days=2 * VALID_DAYS):
        before = len(seen)
        for replica in replicas:
            replica.reconcile()
            for other in replicas:
                if other.served:
                    assert trusts(kept, other.certificate, replica.now)
                    assert other.served[-1].not_after - replica.now > timedelta(days=RENEW_DAYS - 6)
            seen.setdefault(replica.certificate, replica.now)
        changing = len(trusted(kept)) > 1
        most = max(most, len(trusted(kept)))
        serves_next = len(seen) > before or replicas[0].served[-1].not_after - replicas[0].now > timedelta(days=80)
        for replica in replicas:
            replica.now += (
                timedelta(days=5) if not changing else PREVIOUS_CA_LIFETIME / 2 if serves_next else TRUST_DELAY / 2
            )
    assert len(seen) == 3
    assert most == 2
    assert len(trusted(kept)) == 1, "the old CA is forgotten"


def test_a_new_certificate_is_served_once_its_ca_is_long_trusted(
    kept: Objects, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rules_engine.server")
    replica = Replica(kept)
    replica.reconcile()
    first = replica.certificate
    replica.reconcile(timedelta(days=VALID_DAYS - RENEW_DAYS, seconds=1))
    assert replica.certificate == first
    assert len(trusted(kept)) == 2
    as_it_was = {"metadata": {"name": "rules"}, "webhooks": [{"name": "a", "clientConfig": {}}]}
    kept.put(WEBHOOKS[0], as_it_was)
    kept.refuse[WEBHOOKS[1]] = 403
    with pytest.raises(ApiError, match="403"):
        replica.reconcile(TRUST_DELAY)
    assert replica.certificate == first
    del kept.refuse[WEBHOOKS[1]]
    replica.reconcile()
    replica.reconcile(TRUST_DELAY - timedelta(seconds=1))
    assert replica.certificate == first
    kept.put(WEBHOOKS[0], as_it_was)
    replica.reconcile(timedelta(seconds=1))
    replica.reconcile(TRUST_DELAY - timedelta(seconds=1))
    assert replica.certificate == first
    assert "in use" not in caplog.text
    replica.reconcile(timedelta(seconds=1))
    assert replica.certificate != first
    until_when = rfc3339(replica.served[-1].not_after)
    assert caplog.messages[-1] == f"new certificate in use: Secret gpu/tls, valid until {until_when}"
    assert len(trusted(kept)) == 2
    replica.reconcile(PREVIOUS_CA_LIFETIME)
    assert len(trusted(kept)) == 1
    assert trusts(kept, replica.certificate, replica.now)


@pytest.mark.parametrize("broken", ["nothing", "garbage", "not base64", "another service", "another key", "expired"])
def test_an_unusable_secret_is_replaced(kept: Objects, broken: str) -> None:
    replica = Replica(kept)
    replica.reconcile()
    secret = kept.get(SECRET)
    other = Replica(kept)
    if broken == "nothing":
        secret["data"] = None
    elif broken == "garbage":
        secret["data"]["tls.crt"] = "AAAA"
    elif broken == "not base64":
        secret["data"]["tls.crt"] = "?"
    elif broken == "another key":
        kept.put(SECRET, {**secret, "data": {}})
        other.reconcile()
        secret["data"]["tls.key"] = kept.get(SECRET)["data"]["tls.key"]
    elif broken == "another service":
        secret["data"] = {}
        kept.put(SECRET, secret)
        moved = BootstrapNames(namespace="gpu", secret="tls", service="old.gpu.svc", webhooks="rules")
        Bootstrap(replica.bootstrap._connection, moved, replica.served.append, clock=lambda: START).reconcile()
        secret = kept.get(SECRET)
    else:
        other.now += timedelta(days=VALID_DAYS)
    kept.put(SECRET, {**secret, "data": {**(secret["data"] or {}), "theirs": "QQ=="}})
    other.reconcile()
    assert other.certificate not in [identity.certificate for identity in replica.served]
    assert trusts(kept, other.certificate, other.now)
    assert kept.get(SECRET)["data"]["theirs"] == "QQ=="


def test_configurations_created_later_get_the_cas(kept: Objects) -> None:
    configuration = kept.get(WEBHOOKS[0])
    for path in WEBHOOKS:
        kept.delete(path)
    replica = Replica(kept)
    replica.reconcile()
    assert replica.served
    for path in WEBHOOKS:
        kept.put(path, configuration)
    replica.reconcile()
    assert trusts(kept, replica.certificate, START)


def test_a_start_waits_for_the_api_server_and_logs_why_once(
    kept: Objects, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "rules_engine.server")
    monkeypatch.setattr("rules_engine.server.tls.bootstrap.RETRY_SECONDS", 0.01)
    kept.refuse[SECRET] = 403
    replica = Replica(kept)
    thread = Thread(target=replica.bootstrap.wait_reconciled, daemon=True)
    thread.start()
    until(lambda: "403: as the test wants it" in caplog.text, "the reason")
    kept.refuse[SECRET] = 401
    assert replica.configured == 1
    until(lambda: "401: as the test wants it" in caplog.text, "the other reason")
    until(lambda: replica.configured > 1, "credentials that are read again")
    del kept.refuse[SECRET]
    thread.join()
    assert replica.served
    assert caplog.text.count("403: ") == 1
    assert "the certificate cannot be kept in Secret gpu/tls: 403: as the test wants it" in caplog.messages
    assert caplog.messages[-1] == "the certificate can be kept in Secret gpu/tls again"
    monkeypatch.setattr("rules_engine.server.tls.bootstrap.PERIOD_SECONDS", 0.01)
    replica.bootstrap.start()
    kept.put(SECRET, {"metadata": {"name": "tls"}})
    until(lambda: len(replica.served) == 2, "the next pass")
    replica.bootstrap.stop()
    until_ended("bootstrap")


def test_an_unexpected_error_does_not_end_the_task(
    kept: Objects, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rules_engine.server.tls.bootstrap.PERIOD_SECONDS", 0.01)
    monkeypatch.setattr("rules_engine.server.tls.bootstrap.RETRY_SECONDS", 0.01)
    replica = Replica(kept)
    errors = [RuntimeError("ours")]

    def show(identity: Identity) -> None:
        if errors:
            raise errors.pop()
        replica.served.append(identity)

    bootstrap = Bootstrap(replica.bootstrap._connection, PLACE, show, clock=lambda: START)
    bootstrap.start()
    until(lambda: replica.served, "the certificate")
    bootstrap.stop()
    until_ended("bootstrap")
    assert "unexpected error while the certificate was reconciled" in caplog.text
