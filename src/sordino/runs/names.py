"""The names of the files of a run, and of a deployed study on its server."""

from __future__ import annotations

CONFIG, CERTIFICATE, ENVIRONMENT = "config.toml", "certificate.json", "environment.json"
LEDGER, METRICS, MODEL, CHECKPOINT = "ledger.jsonl", "metrics.jsonl", "model.safetensors", "checkpoint.npz"
HEAD = f"{LEDGER}.head"
POINTS = "points"
# How rows of a table became features and labels: needed to apply the model. Where words were counted in the records, it
# names them.
READING = "reading.json"
# A digest of records and seed, for its owner's eyes only. It is not in the ledger, which others may see: it would let
# them check a guess of the records, or of a seed that was given.
RECORDS = "records.sha256"
SEED = "seed.private"  # a fresh seed
SALT = "digests.salt"  # of the digests of secret files
SIGNATURE = "signature.dsse.json"

DESCRIPTION, JOURNAL, STATUS, STATEMENT = "description.json", "journal.jsonl", "status.json", "certificate.dsse.json"
STUDY_STATEMENT = "https://sordino.dev/study-certificate/v1"  # the type of what the server states in it

OPEN = (MODEL, CERTIFICATE)  # with the ledger, they may be handed on
SECRET = (CONFIG, METRICS, ENVIRONMENT, READING)  # they tell of the seed or of the records
