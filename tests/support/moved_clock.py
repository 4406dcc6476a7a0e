"""`gpu-rules` with a clock that the test moves: CLOCK names a file with its offset in seconds."""

import os
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import rules_engine.server.http.probes
import rules_engine.server.serve
import rules_engine.server.tls.renewal
from rules_engine.server.__main__ import main


class _Moved(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(seconds=float(Path(os.environ["CLOCK"]).read_text()))


if __name__ == "__main__":
    for module in (rules_engine.server.http.probes, rules_engine.server.serve, rules_engine.server.tls.renewal):
        module.datetime = _Moved  # type: ignore[attr-defined]
    rules_engine.server.tls.renewal.PERIOD_SECONDS = 0.05
    main()
