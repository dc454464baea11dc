"""Every assumption, false claim and warning of Sordino.

An assumption is a clause, printed after the word "assuming". A warning is a stable code and a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from sordino.privacy.wording.figures import format_epsilon
from sordino.types import Observer, Relation, SeedOrigin, Unit, Warning

# --- Assumptions -----------------------------------------------------------------------------------------------------

ASSUME_OTHERS_ADD_NOISE = "every other client adds its noise and keeps it secret"
# A client that also sees the models can subtract its own noise from them.
ASSUME_OTHERS_HONEST = f"{ASSUME_OTHERS_ADD_NOISE}, and is not the model user itself"
ASSUME_SERVER_TRUSTED = "the server adds the noise and keeps updates to itself"
ASSUME_HONEST_SHUFFLER = "the shuffler is honest and the other clients add their noise"
ASSUME_OWN_RECORDS = (
    "each client's message depends on its own records and on what the server sends, and on nothing else"
)
ASSUME_SECRET_SEED = "nobody who does not know the run's seed can predict its random numbers, and the seed stays secret"
ASSUME_OS_RANDOM = "nobody can predict the random numbers the operating system supplies to the party adding noise"
ASSUME_SECRET_KEYS = (
    "nobody can tell the samples of records, which come from a generator with a fresh 64-bit key, from random ones"
)
ASSUME_SAME_DATA = "all composed runs use the same data, held by the same clients"
ASSUME_INDEPENDENT_RUNS = "the composed runs draw their noise and their samples independently, without a shared seed"


def assume_sampling_hidden(sampling: object, observer: Observer) -> str:
    """The sample of each round is secret."""
    return f"{sampling} sampling stays hidden from the {observer}"


def assume_record_samplings_hidden(observer: Observer) -> str:
    """The same for many clients, each with a sampling of its own."""
    return f"each client's sampling of its records stays hidden from the {observer}"


def assume_shuffler(messages: int, *, others: bool = False) -> str:
    """A shuffler separates messages from senders; `others` leaves out the observer's own message."""
    return f"a shuffler hides who sent which of {messages}{' other' * others} messages"


def assume_secure_aggregation(rounds: int) -> str:
    """The first rounds show the server nothing but sums."""
    return f"in {_first(rounds)} secure aggregation shows the server the sum of all messages and none alone"


def assume_secure_sums(bits: int) -> str:
    """Every round shows the server nothing but a sum."""
    return (
        "the protocol for secure aggregation runs honestly and shows the server who answers, the sum of a round's "
        f"messages modulo 2^{bits}, and nothing else"
    )


ASSUME_REAL_SUMS = (
    "messages and shares of noise are real numbers that are summed without rounding, which no protocol for secure "
    "aggregation does: an idealisation, and no statement about a deployment"
)


def assume_shares(fewest: int, colluding: int) -> str:
    """Whose noise is counted."""
    but = "each of them adds its noise and keeps it secret"
    if colluding:
        but = f"all but {colluding} of them add their noise and keep it secret"
    return f"a sum is opened only if {fewest} clients or more answer, whatever their data are, and {but}"


def assume_first_noise_secret(rounds: int, observer: Observer) -> str:
    """Every client adds its part of the noise on the sums of the first rounds."""
    return f"every other client adds its noise in {_first(rounds)}, keeps it secret, and is not the {observer} itself"


def assume_paper_sensitivities(mu: float) -> str:
    """Eq. (6) of DP-NormFedAvg."""
    return f"that one record moves a message by no more than eq. (6) with mu = {mu:g}, which nothing enforces"


def _first(rounds: int) -> str:
    return "the first round" if rounds == 1 else f"the first {rounds} rounds"


# --- False claims: the text of a `Claimed` event ---------------------------------------------------------------------


def claim_of_theorem_1(epsilon: float, dim: int, log_one_minus_delta: float) -> str:
    """DP-NormFedAvg's calibration; its true delta may be so near 1 that a float would show 1."""
    log_kept = log_one_minus_delta
    true = f"{-math.expm1(log_kept):.6g}" if log_kept > -30 else f"1 - 10^{log_kept / math.log(10):.0f}"
    return (
        f"Theorem 1 of DP-NormFedAvg claims ({epsilon:g}, 2^-{dim})-DP. This is not a valid guarantee: its true "
        f"worst-case delta at epsilon = {epsilon:g} is {true}."
    )


def claim_of_norm_ec(epsilon: float, delta: float, messages: int, relation: Relation, true_epsilon: float) -> str:
    """alpha-NormEC's calibration."""
    return (
        f"The noise sqrt(K log(1/delta))/epsilon of alpha-NormEC is claimed to give epsilon = {epsilon:g} at delta = "
        f"{delta:g} for {messages} messages. This is false: under {relation}, epsilon is "
        f"{format_epsilon(true_epsilon)}."
    )


def claim_of_eq_5(epsilon: float, delta: float, rounds: int, q: float, relation: Relation, true_epsilon: float) -> str:
    """Paper 3's eq. (5) with this q."""
    return (
        f"The noise of equation (5) with q = {q:g} is claimed to give epsilon = {epsilon:g} at delta = {delta:g} for "
        f"{rounds} rounds. This is false: under {relation}, epsilon is {format_epsilon(true_epsilon)}."
    )


# --- Warnings of certificates ----------------------------------------------------------------------------------------


def no_valid_guarantee(claim: str) -> Warning:
    """A published calibration was used whose claim is false."""
    return Warning("no-valid-guarantee", claim)


def not_private(observer: Observer) -> Warning:
    """An observer sees something without noise."""
    return Warning("not-private", f"No noise protects what the {observer} sees: epsilon is infinite.")


def assumed(assumption: str) -> Warning:
    """A sensitivity is assumed."""
    return Warning("assumed", f"This figure assumes {assumption}.")


def unfinished(rounds: int, planned: int) -> Warning:
    """A ledger ends before the last planned round."""
    text = f"The ledger holds {rounds} of {planned} planned rounds. The remaining rounds will add to the privacy loss."
    return Warning("unfinished", text)


def recovered(lines: int) -> Warning:
    """A crash tore lines of a ledger."""
    text = f"{lines} ledger line(s) were torn by a crash. Each is counted as the most expensive release of the run."
    return Warning("recovered", text)


def numbers_are_public(clients: int, planned: float | None = None) -> Warning:
    """Under add-remove; `planned` is the planned cohort, None for a full one."""
    cohort = "" if planned is None else f" and the planned cohort ({planned:g})"
    verbs = "is treated as public and does" if planned is None else "are treated as public and do"
    text = f"The number of clients ({clients}){cohort} {verbs} not change between neighbouring data sets."
    return Warning("numbers-are-public", text)


UNRELIABLE_COHORT = Warning(
    "unreliable-cohort",
    "The number of clients that answer is random and visible, so no amplification by sampling is claimed.",
)


def no_amplification(cohort: object) -> Warning:
    """Clients keep a memory and the cohort has a fixed size."""
    return Warning(
        "no-amplification",
        f"Clients keep a memory between rounds and the cohort ({cohort}) has a fixed size. No theorem covers "
        "amplification by sampling for this combination, so none is claimed. A cohort poisson:Q is amplified.",
    )


def total_counts(rounds: int) -> Warning:
    """Local noise over several rounds."""
    text = f"A client that takes part in all {rounds} rounds has the guarantee of the total, not that of one round."
    return Warning("total-counts", text)


THIS_RUN_ALONE = Warning(
    "this-run-alone", "The certificate covers this run only. Other runs on the same data add to the privacy loss."
)
COMPOSED_RUNS_ALONE = Warning(
    "this-run-alone", "The certificate covers the composed runs only. Others on the same data add to the privacy loss."
)


def run_alone(seed: SeedOrigin | None) -> Warning:
    """The same of a run: with a seed that another run may have, the runs' noise is one and may cancel."""
    if seed not in (SeedOrigin.GIVEN, SeedOrigin.SHARED):
        return THIS_RUN_ALONE
    whose = "Runs with the same seed" if seed is SeedOrigin.GIVEN else "The points of its sweep have one seed and"
    share = f"{whose} share their noise, and together reveal what it hides."
    return Warning("this-run-alone", f"The certificate covers this run only. {share}")


def may_share_noise(seed: SeedOrigin | None) -> str:
    """Why certificates are not composed."""
    origin = "was given by hand" if seed is SeedOrigin.GIVEN else "is that of all points of its sweep"
    return f"the seed of a run {origin}, so that the runs may share their noise, and together reveal what it hides"


def holds_constants(kind: str, name: str, sizes: Iterable[int]) -> Warning:
    """`kind`: "loss"; `name`: "my_loss"; `sizes`: the numbers of each array that it closes over."""
    several = list(sizes)
    listed = ", ".join(f"{size:,}" for size in several)
    arrays, it = (f"an array of {listed}", "it was") if len(several) == 1 else (f"arrays of {listed}", "they were")
    text = (
        f"The {kind} `{name}` holds {arrays} numbers of its own: if {it} computed from clients' data, no figure holds."
    )
    return Warning("holds-constants", text)


def step_size_cost(without: float, total: float, share: float) -> Warning:
    """A released step size raises epsilon by more than `share`."""
    return Warning(
        "step-size-cost",
        f"Releasing the sum of squared norms for the step size raises epsilon from {format_epsilon(without)} to "
        f"{format_epsilon(total)}, by more than {share:.0%}. Set step_cost to limit it.",
    )


def delta_too_large(delta: float, number: int, unit: Unit = Unit.RECORD) -> Warning:
    """delta is not below one over the number of units."""
    text = f"delta = {delta:g} is not below 1/{number}, one over the number of {unit}s: some may be fully exposed."
    return Warning("delta-too-large", text)


def rounded_sums(what: str, share: float, remedy: str) -> Warning:
    """`what`: "sums of 100 messages"; `share`: excess over the sensitivity; `remedy`: "use a smaller cohort"."""
    return Warning(
        "rounded-sums",
        f"{_capitalised(what)} are rounded to float32. Data chosen for this purpose could move one by up to "
        f"{100 * share:.2g} % more than is accounted. {_capitalised(remedy)} to avoid this.",
    )


def noise_for_rounding(messages: int, share: float) -> Warning:
    """Lattice noise is enlarged for the rounding of a large sum."""
    return Warning(
        "noise-for-rounding",
        f"Sums of {messages} messages are rounded to float32. The noise is {100 * share:.2g} % larger, so that the "
        "figures hold. A smaller cohort avoids this.",
    )


IDEAL_SHARES = Warning(
    "idealised",
    "An idealisation: messages and shares of noise are real numbers, which no protocol for secure aggregation sums. "
    'The figures are not those of a deployment. With sampler = "lattice" messages are integers, and so accounted.',
)
SHUFFLE_ADDS_NOTHING = Warning(
    "shuffle-adds-nothing",
    "Shuffling so few messages over so many rounds gives no amplification: the noise is that of trust = local.",
)


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- Warnings about the data -----------------------------------------------------------------------------------------

START_DEPENDS_ON_DATA = Warning(
    "start-depends-on-data",
    "The initial model is computed from all clients' data. The certificate covers the rounds, not the initial model.",
)


def shape_depends_on_data(classes: int) -> Warning:
    """The number of classes was counted in the data."""
    return Warning(
        "shape-depends-on-data",
        f"The model has {classes} outputs because the largest label in the data is {classes - 1}, so its shape reveals "
        "that label. State the number of classes: options = { classes = ... }.",
    )


def words_depend_on_data(columns: Collection[str]) -> Warning:
    """The categories of columns, or the names of labels, were counted in the data."""
    listed = ", ".join(f"`{name}`" for name in columns)
    text = (
        f"The words of {listed} were counted in the data, so the shape of the model reveals how many there are, and "
        "reading.json names them. Declare them: categories = { COLUMN = [...] }, labels = [...]."
    )
    return Warning("shape-depends-on-data", text)


NO_TEST_SET = Warning(
    "measured-on-clients",
    "There is no test set: metrics are computed on the clients' own records and are not covered.",
)


def test_set_of_clients(certain: bool) -> Warning:
    """The test set holds other records of the same clients, or (not certain) may hold them."""
    start = "The test set holds" if certain else "If the test set holds"
    link = ": metrics" if certain else ", metrics"
    return Warning("measured-on-clients", f"{start} other records of the same clients{link} on it are not covered.")


def test_set_held_out(certain: bool) -> Warning:
    """The test records were held out of the private data, or (not certain) may be private too."""
    start = (
        "The test records were held out of the private data: metrics"
        if certain
        else ("If the test records are private, metrics")
    )
    return Warning("measured-on-clients", f"{start} on them are not covered, because they train no model.")


def clients_dealt_anew(clients: int) -> Warning:
    """Records of the data set's own clients were dealt to others."""
    return Warning(
        "clients-dealt-anew",
        f"The records of the data set's own clients were redistributed to {clients} clients. The guarantee protects "
        "one of these, not one client of the data set, whose records may be held by all of them.",
    )


DEALT_BY_LABEL = Warning(
    "dealt-by-label",
    "Labels decided which client holds which record, or which records are test records. The guarantee protects one "
    "record of a client in this partition; it does not cover the partition itself.",
)


def names_are_clients(unit: Unit) -> Warning:
    """The data name their clients."""
    text = f"A person who appears under several names, or in several clients' records, counts as several {unit}s."
    return Warning("names-are-clients", text)


RECORDS_OVERLAP = Warning(
    "records-overlap", "Records overlap. The guarantee protects one record, not content that several records share."
)


def constants_from_data(names: list[str], keys: list[str]) -> Warning:
    """Constants of a theorem that somebody measured on the records that the run protects."""
    made = f"{', '.join(names)} of [rules], from which a theorem made {', '.join(keys)}"
    text = f"Computed from clients' records, which no guarantee here covers: {made}."
    return Warning("constants-from-data", text)


# --- Warnings of error feedback --------------------------------------------------------------------------------------


def beta_too_large(beta: str) -> Warning:
    """Clipped error feedback with beta of 2 or more."""
    text = f"beta = {beta}: with beta of 2 or more, a memory overshoots its gradient by at least its distance from it."
    return Warning("beta-too-large", text)


def beta_above_2_alpha(name: str, step: str, twice_alpha: str, *, smoothed: bool) -> Warning:
    """Normalised error feedback that ends in cycles; `name` is "beta" or "beta C", `smoothed` whether alpha > 0."""
    where = "at distance beta/2 - alpha from" if smoothed else f"within {name} of"
    return Warning(
        "beta-above-2-alpha",
        f"{name} = {step} is above 2 alpha = {twice_alpha}: error feedback does not converge, and each memory ends in "
        f"a 2-cycle {where} its gradient.",
    )


def beta_above_alpha_plus_R(name: str, step: str, alpha: str, R: float | None) -> Warning:
    """Normalised error feedback outside the theorems' range; R is None where it is not known."""
    known = "R is not known" if R is None else f"R = {R:g}"
    return Warning(
        "beta-above-alpha-plus-R",
        f"The theorems need {name} / (alpha + R) < 1. Here {name} = {step}, alpha = {alpha}, and {known} "
        "(R = max_i ||grad f_i(x^0) - g_i^0|| depends on the data).",
    )


def step_size_constants(
    lipschitz: Collection[float], feature_bound: float | None, constants: Mapping[str, float]
) -> str:
    """The public constants behind step sizes; a wrong one costs accuracy, not privacy (clipping enforces L)."""
    low, high = min(lipschitz), max(lipschitz)
    bound = f"L = {low:g}" if low == high else f"L from {low:g} to {high:g}"
    features = "" if feature_bound is None else f"features of norm at most {feature_bound:g}; "
    return features + ", ".join(
        [f"{bound} (enforced)", *(f"{name} = {value:.6g}" for name, value in constants.items())]
    )
