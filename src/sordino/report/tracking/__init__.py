"""Sends the metrics of a run to a tracker that people use already: TensorBoard, MLflow, or Weights & Biases.

A tracker may be a service on another machine, and what was sent cannot be taken back. So only what a guarantee of the
run covers is sent, unless everything is asked for: epsilon always, measured figures where `wording.why_not_covered`
finds no reason against it, and figures computed on the clients' records never.
"""

from sordino.report.tracking.tracker import TRACKERS, Tracker, Tracking, require_tracker

__all__ = ["TRACKERS", "Tracker", "Tracking", "require_tracker"]
