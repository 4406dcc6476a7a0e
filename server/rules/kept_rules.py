"""The active rules in a ConfigMap, for a start whose own files have errors: their texts as JSON, below their digest.

A replica may have older rules than the kept ones: the kubelet takes up to two minutes to update a volume, and a new pod
may begin with an old one. So it replaces only the rules that it had active before, or, once its own are certainly
current, any. It does so once for each rule set, since another replica may have a newer one by then.
"""

import gzip
import logging
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from time import monotonic
from typing import Any

import orjson

from rules_engine.model.json.lenient import as_string_map
from rules_engine.server.cluster.connection import RENEWAL_CAUSES, ApiError, Cause, Connection, api_path
from rules_engine.server.rules.sources import Rules, UnusableError, prepare_texts
from rules_engine.server.state import ServerState
from rules_engine.server.timing import PeriodicTask

MAX_BYTES = 1024 * 1024
"""Bytes of a ConfigMap's values (kubernetes, core/validation, MaxSecretSize)."""

MAX_TEXT_BYTES = 64 * MAX_BYTES
"""Bytes of the texts of kept rules."""

CURRENT_SECONDS = 300.0
"""Time without a change after which rules are current: twice what the kubelet takes, and more."""

PERIOD_SECONDS = 10.0

_log = logging.getLogger(__name__)


class KeptRules:
    """The rules in an existing ConfigMap."""

    def __init__(
        self, connection: Connection, namespace: str, name: str, clock: Callable[[], float] = monotonic
    ) -> None:
        self._connection = connection
        self._name = f"ConfigMap {namespace}/{name}"
        self._path = api_path("configmaps", namespace=namespace, name=name)
        self._clock = clock
        self._digest = self._previous = ""
        """Digests of the active rules, and of the ones before."""
        self._since = 0.0
        self._done = False
        """True once the active rules were kept, by any replica."""

    def load(self) -> Rules:
        """Return the kept rules. Raises UnusableError."""
        try:
            _, values = self._read()
            if not values:
                raise UnusableError(f"gpu-rules serve: no rules are kept in {self._name} yet")
            packed = b64decode(next(iter(values.values())), validate=True)
            text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, MAX_TEXT_BYTES)
            return prepare_texts(as_string_map(orjson.loads(text)), self._name)
        except (ApiError, ValueError, zlib.error) as error:
            raise UnusableError(f"gpu-rules serve: no rules can be read from {self._name}: {error}") from None

    def follow(self, state: ServerState) -> PeriodicTask:
        """Return a task that keeps the active rules."""

        def step() -> float:
            problem = None
            try:
                self.keep(state)
            except ApiError as error:
                if error.cause is Cause.CONFLICT:
                    return 0.0  # another replica was first
                problem = f"the rules cannot be kept in {self._name} for the next start: {error}"
                if error.cause in RENEWAL_CAUSES:
                    self._connection.renew()
                if problem != state.keep_problem:
                    _log.error("%s", problem)
            state.keep_problem = problem
            return PERIOD_SECONDS

        return PeriodicTask(step, name="kept-rules", doing="the rules were kept", retry_seconds=PERIOD_SECONDS)

    def keep(self, state: ServerState) -> None:
        """Keep the active rules unless the kept ones may be newer. Raises ApiError."""
        served, now = state.served, self._clock()
        if served.digest != self._digest:
            self._previous, self._digest, self._since, self._done = self._digest, served.digest, now, False
        config_map, values = self._read()
        kept = next(iter(values), "")
        is_newer = not self._done and (kept == self._previous or now - self._since >= CURRENT_SECONDS)
        if kept != served.digest and (is_newer or not kept):
            packed = gzip.compress(orjson.dumps(dict(served.texts)), mtime=0)
            if len(packed) > MAX_BYTES:
                raise ApiError(Cause.TOO_LARGE, f"{len(packed):,} bytes, compressed, are more than {MAX_BYTES:,}")
            # With the resourceVersion that was read, a concurrent write is a conflict: the next step sees it.
            body = orjson.dumps({**config_map, "binaryData": {served.digest: b64encode(packed).decode()}})
            self._connection.send("PUT", self._path, "application/json", body)
            _log.info("rules with the digest %.12s are kept in %s", served.digest, self._name)
            kept = served.digest
        self._done = self._done or kept == served.digest

    def _read(self) -> tuple[dict[str, Any], dict[str, str]]:
        config_map = self._connection.object(self._path)
        return config_map, dict(as_string_map(config_map.get("binaryData")))
