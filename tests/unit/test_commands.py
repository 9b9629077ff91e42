# SPDX-License-Identifier: GPL-3.0-or-later
"""Every command in every phase: it makes sense, or its refusal names what would."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.command_request import (
    fitting,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.reason import (
    complete,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.commands import (
    COMMANDS,
    FITTING,
    GIVE_WAY,
    PAUSABLE,
    WITHDRAW,
    ahead,
    not_withdrawn,
    refusal,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Record,
    Rollout,
)

ROOT = Path(__file__).resolve().parents[2]
PHASES = list(Phase)
OF_HOSTS = {"exclude", "include"}
BY_DESIGN = {
    "progressing": {"pause", "promote_full", "skip", "abort", "hold", "scale", "set_target"}
    | OF_HOSTS,
    "paused": {
        "pause",
        "promote",
        "promote_full",
        "skip",
        "abort",
        "hold",
        "scale",
        "set_target",
    }
    | OF_HOSTS,
    "awaiting_promotion": {"promote", "promote_full", "skip", "pause", "abort", "hold", "scale"}
    | OF_HOSTS,
    "promoting": {"pause", "abort", "hold", "scale"} | OF_HOSTS,
    "holding": {"pause", "abort", "skip", "promote_full", "hold", "scale"} | OF_HOSTS,
    "held": {"retry", "resume", "abort", "scale"} | OF_HOSTS,
    "rolling_back": {"hold"} | OF_HOSTS,
    "finished": set(),
}


def test_the_phases_are_all_there() -> None:
    assert list(FITTING) == PHASES


@pytest.mark.parametrize("phase", PHASES)
def test_the_commands_that_make_sense(phase: Phase) -> None:
    assert {command for command in COMMANDS if not refusal(phase, command)} == BY_DESIGN[phase]


@pytest.mark.parametrize(("phase", "command"), list(itertools.product(PHASES, COMMANDS)))
def test_a_refusal_names_what_would_make_sense(phase: Phase, command: str) -> None:
    text = refusal(phase, command)
    if not text:
        return
    why, _semicolon, instead = text.partition("; ")
    assert why and instead and "\n" not in text and not text.endswith(".")
    playbooks = re.findall(r"\b\w+\.yml\b", instead)
    assert all((ROOT / "playbooks" / name).is_file() for name in playbooks)
    named = {name for name in COMMANDS if re.search(rf"\b{name}\b", instead)}
    assert playbooks or named & BY_DESIGN[phase]
    assert named <= BY_DESIGN[phase], "it advises what would be refused"


@pytest.mark.parametrize(("phase", "command"), list(itertools.product(PHASES, COMMANDS)))
def test_a_command_that_is_not_obeyed_yet_leads_to_a_phase(phase: Phase, command: str) -> None:
    assert ahead(phase, command)[0] in PHASES


@pytest.mark.parametrize(("phase", "command"), list(itertools.product(PHASES, COMMANDS)))
def test_a_command_is_judged_by_the_phase_where_none_was_said_before_it(
    phase: Phase, command: str
) -> None:
    record = Record("shop")
    record.rollout = Rollout("r", "2", 2, 3, "canary", None, 0.0, phase=phase)
    if refused := refusal(phase, command):
        with pytest.raises(RolloutFailed, match=re.escape(refused)):
            fitting(record, command, (), False)
    else:
        assert fitting(record, command, (), False) is record.rollout


def test_all_commands_before_it_decide_whether_one_fits() -> None:
    record = Record("shop")
    record.rollout = Rollout("r", "2", 2, 3, "canary", None, 0.0, phase=Phase.HELD)
    abort, exclude, promote = ({"word": word} for word in ("abort", "exclude", "promote"))
    for before in ([abort], [abort, exclude], [promote, abort, exclude]):
        with pytest.raises(RolloutFailed, match="is rolling back: a rollback cannot be undone"):
            fitting(record, "retry", before, False)
    assert fitting(record, "retry", [exclude, promote], False), (
        "one that is refused changes nothing"
    )


def test_a_pause_that_is_not_obeyed_yet_can_be_taken_back() -> None:
    phase, paused = ahead(Phase.PROGRESSING, "pause")
    assert refusal(Phase.PROGRESSING, "resume") and not refusal(phase, "resume", paused=paused)
    assert refusal(Phase.PROGRESSING, "retry") and not refusal(
        ahead(Phase.PROGRESSING, "hold")[0], "retry"
    )
    assert ahead(Phase.PAUSED, "promote") == ("progressing", False)
    assert ahead(Phase.HOLDING, "skip") == ("promoting", False)


@pytest.mark.parametrize("phase", PHASES)
def test_resume_undoes_a_pause_and_nothing_else(phase: Phase) -> None:
    assert bool(refusal(phase, "resume", paused=True)) == (phase not in (*PAUSABLE, Phase.HELD))
    assert bool(refusal(phase, "resume")) == (phase != Phase.HELD)
    assert bool(refusal(phase, "pause")) == (
        phase in (Phase.HELD, Phase.ROLLING_BACK, Phase.FINISHED)
    )


def test_the_page_of_commands_has_the_same_table() -> None:
    section = (ROOT / "docs/how-to/control.md").read_text().partition("## Commands by phase")[2]
    head, _line, *rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in section.splitlines()
        if row.startswith("|")
    ]
    assert [phase.replace(" ", "_") for phase in head[1:]] == PHASES
    written = {
        row[0].strip("`"): [
            phase for phase, cell in zip(PHASES, row[1:], strict=True) if cell == "x"
        ]
        for row in rows
    }
    assert written == {
        command: [phase for phase in PHASES if not refusal(phase, command, paused=True)]
        for command in COMMANDS
    }


@pytest.mark.parametrize(
    ("given", "passed_on", "reason"),
    [
        ("rollout_why=wrong prices shown", "wrong", "wrong prices shown"),
        ("rollout_why=wrong", "wrong", "wrong"),
        ("rollout_service=shop rollout_why=wrong  prices", "wrong", "wrong prices"),
        ("rollout_why=wrong prices rollout_service=shop", "wrong", "wrong prices"),
        ("rollout_why='wrong prices' x=1", "wrong prices", "wrong prices"),
        ('{"rollout_why": "wrong prices"}', "wrong prices", "wrong prices"),
        ("@shop.yml", "wrong", "wrong"),
        ("rollout_why=others said this", "wrong", "wrong"),  # a later one goes before it
    ],
)
def test_a_reason_is_whole_as_it_was_given(given: str, passed_on: str, reason: str) -> None:
    """As `ansible-playbook -e` is given it, and what Ansible makes of that."""
    assert complete(passed_on, ["@shop.yml", given]) == reason


def test_a_reason_of_which_the_end_cannot_be_told_is_refused() -> None:
    with pytest.raises(
        InputError,
        match=(
            r"^rollout_why: Ansible takes only 'ratio' of .*; write -e '\{\"rollout_why\":"
            r" \"...\"\}'"
        ),
    ):
        complete("ratio", ["rollout_why=ratio new=3 is too high"])


def test_a_command_that_was_taken_back_is_none() -> None:
    said = [{"number": n, "word": command} for n, command in ((3, "pause"), (4, "promote"))]
    assert not_withdrawn(said) == said
    assert not_withdrawn([*said, {"number": 5, "word": WITHDRAW, "of": 4}]) == said[:1]
    assert not_withdrawn([{"number": 5, "word": WITHDRAW, "of": 1}]) == []


def test_only_what_goes_forward_gives_way_and_no_operator_says_so() -> None:
    assert {phase for phase in PHASES if refusal(phase, GIVE_WAY)} == {"rolling_back", "finished"}
    assert GIVE_WAY not in COMMANDS and WITHDRAW not in COMMANDS
