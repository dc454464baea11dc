"""Accounting on the host: events, accountants, calibration, guarantees, ledger, budget, audit. NumPy, never traced."""

from sordino.privacy.accountants import Account as Account
from sordino.privacy.accountants import account_of as account_of
from sordino.privacy.accountants import delta_of as delta_of
from sordino.privacy.accountants import epsilon_of as epsilon_of
from sordino.privacy.budget import Budget as Budget
from sordino.privacy.calibration import calibrate as calibrate
from sordino.privacy.calibration import calibrate_gaussian as calibrate_gaussian
from sordino.privacy.certification import certify as certify
from sordino.privacy.certification import certify_ledger as certify_ledger
from sordino.privacy.guarantee import Certificate as Certificate
from sordino.privacy.guarantee import Guarantee as Guarantee
from sordino.privacy.ledger import Ledger as Ledger
from sordino.privacy.ledger import read_ledger as read_ledger
from sordino.privacy.ledger_record import LedgerRecord as LedgerRecord
from sordino.privacy.sampling import Full as Full
from sordino.privacy.sampling import Poisson as Poisson
from sordino.privacy.sampling import Sampling as Sampling
from sordino.privacy.sampling import WithoutReplacement as WithoutReplacement
from sordino.privacy.sampling import WithReplacement as WithReplacement
from sordino.privacy.sampling import parse_sampling as parse_sampling
from sordino.privacy.shuffle import shuffle_epsilon as shuffle_epsilon
from sordino.types import Warning as Warning
