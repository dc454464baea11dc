"""The calculator as a user runs it: its output and its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sordino.privacy import Ledger
from sordino.privacy.events import Gaussian, Sampled
from sordino.privacy.sampling import Poisson

STATEMENT = {"unit", "relation", "observer", "scope", "rounds", "accountant", "warnings"}


@pytest.fixture
def account(run):
    def account_command(arguments: str) -> dict:
        data = json.loads(run("account", *arguments.split(), "--json").stdout)
        assert set(data) >= STATEMENT | {"epsilon", "delta"}
        return data

    return account_command


def test_the_installed_command():
    """One real process: no traceback, one line, the exit code."""
    sordino = Path(sys.executable).parent / "sordino"
    good = subprocess.run([sordino, "--version"], capture_output=True, text=True, timeout=120)
    assert (good.returncode, good.stdout.split()[0]) == (0, "sordino")
    bad = subprocess.run([sordino, "account", "nothing"], capture_output=True, text=True, timeout=120)
    assert (bad.returncode, len(bad.stderr.strip().splitlines())) == (2, 1)


def test_gaussian_poisson(account):
    data = account("gaussian --noise-multiplier 2.6879 --cohort poisson:0.2 --rounds 200 --delta 1e-5")
    assert data["epsilon"] == pytest.approx(4.9997, abs=2e-3)
    assert (data["relation"], data["rounds"], data["scope"]) == ("add-remove", 200, "all rounds")
    assert 0 < data["one_round"]["epsilon"] < data["epsilon"]


def test_gaussian_without_replacement(account):
    options = "--noise-multiplier 2 --cohort fixed:50/1000 --relation replace-one --rounds 200 --delta 1e-5"
    assert account(f"gaussian {options}")["epsilon"] == pytest.approx(1.7362, abs=5e-3)


def test_gaussian_solves_for_the_noise(account):
    data = account("gaussian --epsilon 5 --delta 1e-5 --cohort poisson:0.2 --rounds 200")
    assert data["noise_multiplier"] == pytest.approx(2.688, abs=2e-3)
    assert data["epsilon"] <= 5


def test_gaussian_solves_for_delta(account):
    assert account("gaussian --noise-multiplier 1 --epsilon 1")["delta"] == pytest.approx(0.1269367375)


def test_tdl(account):
    data = account("tdl --m 3 --alpha 1/6 --shift 2,2,2 --epsilon 0.5")
    assert data["delta"] == pytest.approx(0.5994224655866595, abs=1e-12)
    data = account("tdl --m 3 --alpha 0.1 --shift 2x3 --epsilon 1")
    assert data["normalizer"] == pytest.approx(5.928772783591319)
    assert data["variance"] == pytest.approx(3.659146610072234)


def test_qtdl_labels_the_paper_and_offers_sound_choices(run, account):
    data = account("qtdl --dim 328810 --levels 64 --mu 0.1 --epsilon 10")
    assert (data["m"], data["t"]) == (9, 8)
    assert data["delta"] == 1.0
    assert data["default"] == "gaussian"
    assert {choice["noise"]: choice["bits"] for choice in data["sound"]} == {
        "gaussian": 14,
        "truncated-laplace": 15,
        "laplace": 22,
    }
    assert {warning["code"] for warning in data["warnings"]} >= {"no-valid-guarantee", "assumed"}
    text = run(*"account qtdl --dim 328810 --levels 64 --mu 0.1 --epsilon 10".split()).stdout
    assert "no valid guarantee" in text


def test_privunit_and_scalar_dp(account):
    data = account("privunit --dim 237 --eps0 2 --eps1 2")
    assert data["p"] == pytest.approx(0.880797077978)
    assert data["gamma"] == pytest.approx(0.07671318618687673)
    assert data["m"] == pytest.approx(0.09377375312822263)
    assert data["epsilon"] == pytest.approx(4.0)
    assert account("privunit --dim 237 --eps0 2 --eps1 2 --gamma sufficient")["gamma"] == pytest.approx(
        0.06213374631129013
    )
    total = account("privunit --dim 237 --eps0 2 --eps1 2 --eps2 2 --rounds 50 --delta 1e-5")
    assert total["epsilon"] == pytest.approx(289.7, abs=0.05)
    assert total["one_round"]["epsilon"] == pytest.approx(6.0, abs=1e-3)
    scalar = account("scalar-dp --eps2 2 --bound 1")
    assert [scalar[key] for key in ("k", "a", "b", "c1", "c2", "c3")] == pytest.approx(
        [2, 0.734776464124, 0.319520936758, 0.469552928249, -0.469552928249, 0.324240770191]
    )


def test_binomial_counts_bits_as_the_paper_and_as_they_are(account):
    data = account("binomial --dim 328810 --levels 4096 --mu 0.1 --epsilon 10")
    assert (data["coins"], data["t_paper"], data["t"]) == (2843815, 23, 22)


def test_shuffle(account):
    data = account("shuffle --eps0 1 --n 1000 --delta 1e-6 --method closed")
    assert data["epsilon"] == pytest.approx(0.566201489, abs=1e-8)
    data = account("shuffle --eps0 1 --n 1000 --delta 1e-6 --method numeric")
    assert data["epsilon"] == pytest.approx(0.18241, abs=1e-4)


def test_compose(run, account, tmp_path: Path):
    file = tmp_path / "releases.toml"
    text = """
        delta = 1e-5
        relation = "replace-one"
        rounds = 50
        units = 1000
        [[release]]
        name = "mean update"
        mechanism = "gaussian"
        noise_multiplier = 2.5
        [[release]]
        name = "step size"
        mechanism = "gaussian"
        noise_multiplier = 12.5
        """
    file.write_text(text)
    data = account(f"compose {file}")
    assert data["epsilon"] == pytest.approx(15.850909, abs=1e-5)
    assert [row["release"] for row in data["releases"]] == ["mean update", "step size"]
    for wrong, words in (
        ("noise = 3", "noise = 3"),
        ("times = 1.9", "times = 1.9"),
        ('cohort = "full"', "cohort = 'full'"),
    ):
        file.write_text(text + f"\n{wrong}\n")
        assert words in run("account", "compose", str(file), code=2).stderr
    file.write_text(text.replace("rounds = 50", "rounds = 2.9"))
    assert "rounds = 2.9" in run("account", "compose", str(file), code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("account gaussian --noise-multiplier -1 --delta 1e-5", "noise_multiplier = -1.0"),
        ("account gaussian --noise-multiplier 1 --delta 1", "delta = 1.0"),
        ("account gaussian --noise-multiplier 1 --delta x", "--delta"),
        ("account gaussian --noise-multiplier 1", "exactly two"),
        (
            "account gaussian --epsilon 1 --delta 1e-5 --relation replace-one --cohort fixed:11/10",
            "K must not exceed n",
        ),
        ("account gaussian --noise-multiplier 1 --delta 1e-5 --observer server", "state rounds"),
        ("account gaussian --noise-multiplier 1 --delta 1e-5 --observer server --rounds 2", "zero-out"),
        ("account gaussian --noise-multiplier 1 --delta 1e-5 --units 0", "units = 0"),
        ("account tdl --m 3 --alpha 0.1 --shift 2x-3 --epsilon 1", "shift"),
        ("account shuffle --eps0 800 --n 10 --delta 1e-5", "at most 700"),
        ("account gaussian --epsilon 2 --delta 1e-5 --formula classical", "epsilon <= 1"),
        ("account shuffle --eps0 4 --n 10000 --delta 1e-6 --method closed", "numeric"),
        ("account shuffle --eps0 4 --n 10000 --delta 1e-6 --method fmt23", "2021"),
        ("account qtdl --dim 3 --levels 2 --epsilon 10", "Theorem 1 is stated for"),
        ("account privunit --dim 2 --eps0 2 --eps1 2 --gamma sufficient", "gamma = exact"),
        ("account privunit --dim 1 --eps0 2 --eps1 2", "dim = 1"),
        ("account laplce", "Use one of gaussian"),
        ("acount", "Use one of"),
        ("account compose nowhere.toml", "nowhere.toml"),
        ("certify nowhere", "run = 'nowhere': there is no run here: check the path"),
        ("certify README.md", "run = 'README.md': is not a ledger"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, arguments, words):
    result = run(*arguments.split(), code=2)
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.jsonl"
    release = Sampled(Gaussian(2.6879), Poisson(0.2))
    description = {"delta": 1e-5, "units": 3000}
    with Ledger.create(
        path, unit="client", relation="add-remove", worst_release=Gaussian(2.6879), description=description
    ) as ledger:
        for round in range(20):
            ledger.append(round=round, release="mean update", observers=["model user"], event=release)
    return path


def test_certify_recomputes_from_the_ledger(run, account, ledger_path: Path):
    data = json.loads(run("certify", str(ledger_path), "--json").stdout)
    (guarantee,) = data["guarantees"]
    expected = account("gaussian --noise-multiplier 2.6879 --cohort poisson:0.2 --rounds 20 --delta 1e-5")
    assert guarantee["epsilon"] == expected["epsilon"]
    assert (guarantee["rounds"], guarantee["units"]) == (20, 3000)
    assert "model user" in run("certify", str(ledger_path.parent)).stdout


def test_certify_joins_the_releases_of_one_cohort_and_refuses_the_server(run, tmp_path: Path):
    release = Sampled(Gaussian(1.0), Poisson(0.01))
    for observer, code in (("model user", 0), ("server", 2)):
        path = tmp_path / f"{observer}.jsonl"
        with Ledger.create(path, unit="client", relation="zero-out", worst_release=release) as ledger:
            for name in ("update", "step size"):
                ledger.append(round=0, release=name, observers=[observer], event=release)
        result = run("certify", str(path), "--delta", "1e-5", "--json", code=code)
        if code == 0:
            assert json.loads(result.stdout)["guarantees"][0]["epsilon"] == pytest.approx(0.8160, abs=2e-3)
        else:
            assert "sees who takes part" in result.stderr


def test_truncated_ledger(run, ledger_path: Path):
    whole = ledger_path.read_text()
    ledger_path.write_text("".join(whole.splitlines(keepends=True)[:10]))
    result = run("certify", str(ledger_path), code=2)
    assert str(ledger_path) in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_help_lists_every_command(run):
    text = run("--help").stdout
    for command in ("account", "certify", "demo"):
        assert command in text
