"""Rounds: the two turns, and the engine that runs thousands of clients' turns as one program."""

from sordino.rounds.engine import ProgramSpec, RoundInfo, RoundState, run_rounds
from sordino.rounds.turns import ClientKeys, ServerKeys, client_turn, server_turn, tally

__all__ = [
    "ClientKeys",
    "ProgramSpec",
    "RoundInfo",
    "RoundState",
    "ServerKeys",
    "client_turn",
    "run_rounds",
    "server_turn",
    "tally",
]
