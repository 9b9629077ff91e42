# SPDX-License-Identifier: GPL-3.0-or-later
"""Braces of JSON and of shells in options: what a refusal advises works as it is printed, in YAML
that Ansible renders.
"""

from __future__ import annotations

import json
import re
import typing as t

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.messages import MESSAGES
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.placeholders import BRACES
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _options


def rendered(text: str) -> t.Any:
    """Return what a step gets of the variables of a file, as a role passes them on."""
    loader = DataLoader()
    variables = loader.load(text)
    whole = trust_as_template("{{ given | combine({'port': 80}) }}")
    return Templar(loader, variables={"given": variables}).template(whole)


def test_json_in_an_environment_is_written_as_the_refusal_says() -> None:
    with pytest.raises(InputError) as refused:
        _options.environment({"CONFIG": '{"level": "info"}'}, "rollout_platform.env")
    assert refused.value.id == "PR-112" and str(refused.value).endswith(BRACES)
    remedy = MESSAGES["PR-112"].remedy
    advised = re.search(r"`(CONFIG: .*)`", remedy)
    assert advised and "!unsafe '{{" in BRACES
    given = rendered(advised[1])
    env = _options.environment({"CONFIG": given["CONFIG"]}, "rollout_platform.env")
    text = _options.fill(env["CONFIG"], "", {})
    assert json.loads(text) == {"level": "info"}


def test_a_variable_of_the_shell_is_written_as_the_refusal_says() -> None:
    with pytest.raises(InputError, match=r"write \{\{ or \}\} for a brace, and !unsafe") as refused:
        _options.template("exec shop ${HOME} {port}", "rollout_platform.command")
    assert refused.value.id == "PR-112"
    given = rendered("command: [sh, -c, !unsafe 'exec shop ${{HOME}} {port}']")
    text = _options.template(given["command"][2], "rollout_platform.command")
    assert _options.fill(text, "", {"port": "80"}) == "exec shop ${HOME} 80"
