"""Rounds: the two turns, and the engine that runs thousands of clients' turns as one program."""

from sordino.rounds.engine import ProgramSpec as ProgramSpec
from sordino.rounds.engine import RoundInfo as RoundInfo
from sordino.rounds.engine import RoundState as RoundState
from sordino.rounds.engine import run_rounds as run_rounds
from sordino.rounds.turns import ClientKeys as ClientKeys
from sordino.rounds.turns import ServerKeys as ServerKeys
from sordino.rounds.turns import client_turn as client_turn
from sordino.rounds.turns import server_turn as server_turn
from sordino.rounds.turns import step_turn as step_turn
from sordino.rounds.turns import tally as tally
from sordino.rounds.turns import train_turn as train_turn
