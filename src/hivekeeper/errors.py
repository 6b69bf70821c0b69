"""Every error that a person may see, in one tree; each says what happened and what to do.

HiveError                        exit code
├── InputError                   2   a plan, a setting or an argument is wrong
├── AnotherKeeperError           3   another process holds the coordinator's lease
│   └── StaleEpochError          3   we held it, and a successor has taken over
├── LedgerRefusedError           4   the ledger must not be used as it is
│   ├── UnreadableLedgerError        not a database, or no permission
│   ├── ForeignLedgerError           a database, but not a hive's
│   ├── NewerLedgerError             written by a newer Hivekeeper
│   ├── OlderLedgerError             written by an older one, before the first release
│   └── DamagedLedgerError           head, chain or tables do not agree
├── UnavailableError             5   disk, permission, git: something needed is not there
└── IllegalTransitionError       1   a state machine refused (a bug, or a lost race: the pass is repeated)

Expected outcomes (nothing to do, lost a race, merge conflict) are return values, not errors.
"""

from typing import ClassVar


class HiveError(Exception):
    """Something went wrong."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, advice: str = "") -> None:
        super().__init__(f"{what}\n{advice}" if advice else what)
        self.what = what
        self.advice = advice


class InputError(HiveError):
    """The input is wrong."""

    exit_code = 2


class AnotherKeeperError(HiveError):
    """Another keeper is active."""

    exit_code = 3


class StaleEpochError(AnotherKeeperError):
    """A successor has taken the lease; nothing more may be written by this process."""


class LedgerRefusedError(HiveError):
    """The ledger must not be used as it is."""

    exit_code = 4


class UnreadableLedgerError(LedgerRefusedError):
    """The ledger cannot be read."""


class ForeignLedgerError(LedgerRefusedError):
    """The file is not a hive's ledger."""


class NewerLedgerError(LedgerRefusedError):
    """The ledger was written by a newer Hivekeeper."""


class OlderLedgerError(LedgerRefusedError):
    """The ledger was written by an older Hivekeeper, before the first release."""


class DamagedLedgerError(LedgerRefusedError):
    """The ledger is damaged."""


class UnavailableError(HiveError):
    """Something needed is unavailable."""

    exit_code = 5


class IllegalTransitionError(HiveError):
    """A state machine refused a change; a pass that meets this is rolled back and run again."""
