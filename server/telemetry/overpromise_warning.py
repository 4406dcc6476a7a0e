"""The warning about rules that read free devices while no devices are reserved."""

import logging

from server.http import probes
from server.state import State

_log = logging.getLogger(__name__)


class OverpromiseWarning:
    """Logs a warning when rules that read free devices come into force, and no devices are reserved."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._logged = False

    def check(self) -> None:
        overpromises = self._state.overpromises
        if overpromises and not self._logged:
            _log.warning("%s", probes.OVERPROMISES)
        self._logged = overpromises
