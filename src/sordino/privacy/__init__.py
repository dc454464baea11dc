"""Accounting on the host: events, accountants, calibration, guarantees, ledger, budget, audit. NumPy, never traced."""

from sordino.privacy.accountants import Account, account_of, delta_of, epsilon_of
from sordino.privacy.budget import Budget
from sordino.privacy.calibration import calibrate, calibrate_gaussian
from sordino.privacy.certification import certify, certify_ledger
from sordino.privacy.guarantee import Certificate, Guarantee
from sordino.privacy.ledger import Ledger, read_ledger
from sordino.privacy.ledger_record import LedgerRecord
from sordino.privacy.sampling import (
    Full,
    Poisson,
    Sampling,
    WithoutReplacement,
    WithReplacement,
    parse_sampling,
)
from sordino.privacy.shuffle import shuffle_epsilon
from sordino.types import Warning

__all__ = [
    "Account",
    "Budget",
    "Certificate",
    "Full",
    "Guarantee",
    "Ledger",
    "LedgerRecord",
    "Poisson",
    "Sampling",
    "Warning",
    "WithReplacement",
    "WithoutReplacement",
    "account_of",
    "calibrate",
    "calibrate_gaussian",
    "certify",
    "certify_ledger",
    "delta_of",
    "epsilon_of",
    "parse_sampling",
    "read_ledger",
    "shuffle_epsilon",
]
