"""A table of patients as clinics have it: words for labels, an index column, a name that is not ASCII."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

CLINICS = ("Orléans", "Bern", "Leeds", "Porto", "Gent", "Turku", "Cork", "Graz", "Brno", "Lund", "Metz", "Nice")
HEADER = ("", "clinic", "age", "radius", "area", "sex", "stage", "diagnosis")
CATEGORIES = {"sex": ["female", "male"], "stage": ["I", "II", "III"]}
RANGES = {"age": [18, 100], "radius": [5, 30], "area": [50, 2500]}
OPTIONS = {
    "client": "clinic",
    "label": "diagnosis",
    "labels": ["benign", "malignant"],
    "categories": CATEGORIES,
    "ranges": RANGES,
    "test_share": 0.2,
}


def rows(patients: int = 569, seed: int = 7) -> list[list[object]]:
    """One row for each patient."""
    rng = np.random.default_rng(seed)
    sick = rng.random(patients) < 0.37
    age = np.clip(rng.normal(52, 14, patients) + 8 * sick, 20, 95).round().astype(int)
    radius = rng.normal(12, 1.8, patients) + 5 * sick
    area = np.pi * radius**2 * rng.normal(1, 0.05, patients)
    sex = rng.choice(["female", "male"], patients)
    stage = np.where(sick, rng.choice(["II", "III"], patients), rng.choice(["I", "II"], patients))
    clinic = rng.permutation(np.arange(patients) % len(CLINICS))
    return [
        [
            number,
            CLINICS[clinic[number]],
            int(age[number]),
            round(float(radius[number]), 2),
            round(float(area[number]), 1),
            str(sex[number]),
            str(stage[number]),
            "malignant" if sick[number] else "benign",
        ]
        for number in range(patients)
    ]


def columns(patients: int = 569) -> dict[str, list[object]]:
    """The same by columns, without the index."""
    return {name: list(values) for name, *values in zip(HEADER, *rows(patients), strict=True) if name}


def write(path: Path, patients: int = 569, encoding: str = "latin-1") -> Path:
    """A CSV file as pandas writes it."""
    with open(path, "w", encoding=encoding, newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows(rows(patients))
    return path
