"""Tables: UCI Heart Disease by hospital and UCI Adult by occupation.

No statistic of the records is computed here. Numbers are mapped from a fixed, public range to [-1, 1] and clipped to
it; categories come from a fixed, public vocabulary. Scaling by the mean and deviation of the data would be a release
that no certificate covers.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sordino.data._files import Source, obtain, published
from sordino.data._records import Dataset
from sordino.data._scaling import to_unit

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"


class Range(NamedTuple):
    """A column of numbers and the public range that is mapped to [-1, 1]; `log` for heavy tails."""

    column: int
    low: float
    high: float
    log: bool = False


class Categories(NamedTuple):
    """A column of words, and the words, separated by spaces, that become indicator columns; others are all zeros."""

    column: int
    words: str


def _encode(rows: NDArray[np.str_], columns: tuple[Range | Categories, ...]) -> NDArray[np.float32]:
    parts = [
        _scaled(rows[:, column.column].astype(np.float64), column)[:, None]
        if isinstance(column, Range)
        else rows[:, column.column, None] == np.array(column.words.split())
        for column in columns
    ]
    return np.concatenate(parts, axis=1, dtype=np.float32, casting="unsafe")


def _scaled(values: NDArray[np.float64], column: Range) -> NDArray[np.float64]:
    low, high = column.low, column.high
    if column.log:
        values, low, high = np.log1p(values), np.log1p(low), np.log1p(high)
    return to_unit(values, low, high)


# --- Heart disease -----------------------------------------------------------------------------------------------

_HOSPITALS = {
    "cleveland": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
    "hungarian": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
    "switzerland": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
    "va": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
}
_HEART_FILES = {f"processed.{hospital}.data": f"sha256:{digest}" for hospital, digest in _HOSPITALS.items()}
HEART_DISEASE = Source("heart-disease", (published(_HEART_FILES, f"{_UCI}heart-disease/"),))
# Ranges of adults' values from general medical knowledge, not from these patients.
_HEART_COLUMNS = (
    Range(0, 20, 80),  # age, years
    Range(1, 0, 1),  # sex
    Range(3, 80, 200),  # trestbps, resting blood pressure, mm Hg
    Range(4, 0, 600),  # chol, serum cholesterol, mg/dl (0 where a hospital did not measure it)
    Range(5, 0, 1),  # fbs, fasting blood sugar above 120 mg/dl
    Range(7, 60, 220),  # thalach, highest heart rate
    Range(8, 0, 1),  # exang, angina under exercise
    Range(9, -3, 7),  # oldpeak, ST depression under exercise
    Categories(2, "2 3 4"),  # cp, chest pain; 1 is all zeros, as in FLamby
    Categories(6, "1 2"),  # restecg, resting electrocardiogram; 0 is all zeros
)
_KEPT_COLUMNS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13)


def load_heart_disease() -> Dataset:
    """740 patients of 4 hospitals, x [N, 13]; the label says whether there is heart disease (num > 0).

    Rows and columns are FLamby's (Fed-Heart-Disease): without slope, ca and thal, then without rows that miss a value;
    chest pain and electrocardiogram become indicator columns. FLamby holds out a random 34 % of each hospital's
    sick and healthy patients; here every third of each group is held out, which needs no seed.
    """
    rows = [_read_hospital(path) for path in obtain(HEART_DISEASE)]
    hospital = np.repeat(np.arange(len(rows), dtype=np.int32), [len(part) for part in rows])
    table = np.concatenate(rows)
    x, y = _encode(table, _HEART_COLUMNS), (table[:, -1].astype(np.float64) > 0).astype(np.int32)
    test = _every_third(2 * hospital + y)
    records = Dataset("heart-disease", x[~test], y[~test], x[test], y[test], 2, hospital[~test], tuple(_HOSPITALS))
    return records._replace(tests_clients=True, split_by_label=True)


def _read_hospital(path: Path) -> NDArray[np.str_]:
    rows = [line.split(",") for line in path.read_text(encoding="ascii").splitlines()]
    # Cleveland writes 4.0 and the other hospitals 4.
    kept = [[row[column].removesuffix(".0") for column in _KEPT_COLUMNS] for row in rows]
    return np.array([row for row in kept if "?" not in row])


def _every_third(group: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Marks the 3rd, 6th, ... record of each group."""
    held_out = np.zeros(len(group), np.bool_)
    for value in np.unique(group):
        held_out[np.flatnonzero(group == value)[2::3]] = True
    return held_out


# --- Adult -------------------------------------------------------------------------------------------------------

_ADULT = {
    "adult.data": "sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
_ADULT_PACKED = {
    "adult.data.gz": "sha256:c7a2b4716a97f930123e0baf879188d701e798172631a654fc703d4b082907f3",
    "adult.test.gz": "sha256:8a2c1bffa6e7ce5abfa43881ae5e87c4311ebc2b3cd526c9c40a43f19f06f799",
}
ADULT = Source("adult", (published(_ADULT, f"{_UCI}adult/"), published(_ADULT_PACKED)))
_OCCUPATION, _INCOME = 6, 14


_OCCUPATIONS = (
    "? Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners Machine-op-inspct "
    "Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support Transport-moving"
)
_EDUCATIONS = (
    "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate HS-grad Masters "
    "Preschool Prof-school Some-college"
)
_COUNTRIES = (
    "? Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France Germany "
    "Greece Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica Japan "
    "Laos Mexico Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland "
    "South Taiwan Thailand Trinadad&Tobago United-States Vietnam Yugoslavia"
)
# The words of the data set's description (adult.names), with "?" for a missing value; the ranges are round numbers near
# those published for this public data set.
_ADULT_COLUMNS = (
    Range(0, 0, 100),  # age
    Range(2, 1e4, 2e6, log=True),  # fnlwgt, the number of people that a row represents
    Range(4, 1, 16),  # education-num
    Range(10, 0, 99999, log=True),  # capital-gain
    Range(11, 0, 99999, log=True),  # capital-loss
    Range(12, 0, 99),  # hours-per-week
    Categories(1, "? Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov Without-pay"),
    Categories(3, _EDUCATIONS),
    Categories(
        5, "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated Widowed"
    ),
    Categories(_OCCUPATION, _OCCUPATIONS),
    Categories(7, "Husband Not-in-family Other-relative Own-child Unmarried Wife"),
    Categories(8, "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White"),
    Categories(9, "Female Male"),
    Categories(13, _COUNTRIES),
)


def load_adult() -> Dataset:
    """32,561 + 16,281 rows of the US census of 1994 (Becker & Kohavi 1996), x [N, 108]; label: income above 50K.

    The natural clients are the 15 occupations, one of them "?" (unknown).
    """
    (x, y, occupation), (x_test, y_test, _) = (_read_adult(path) for path in obtain(ADULT))
    names = tuple(_OCCUPATIONS.split())
    return Dataset("adult", x, y, x_test, y_test, 2, client=occupation, client_names=names, tests_clients=True)


def _read_adult(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int32]]:
    contents = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = contents.decode("ascii").splitlines()
    table = np.array([line.split(", ") for line in lines if line.count(",") == _INCOME])  # drops the comment line
    income = np.char.rstrip(table[:, _INCOME], ".")  # the test file ends its labels in a full stop
    occupation = np.searchsorted(_OCCUPATIONS.split(), table[:, _OCCUPATION]).astype(np.int32)
    return _encode(table, _ADULT_COLUMNS), (income == ">50K").astype(np.int32), occupation
