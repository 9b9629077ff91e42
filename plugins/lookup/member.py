# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluate the arguments of steps with the variables of a member of a release."""

from __future__ import annotations

DOCUMENTATION = r"""
name: member
short_description: The arguments of steps for a member of a release
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Evaluates arguments of steps with a member's own variables in place of variables of the same names, wherever a template refers to them.
    C(release.yml) uses it.
options:
  _terms:
    description: Names of variables with the arguments of steps.
    required: true
    type: list
    elements: str
  own:
    description: The name of a variable with the member's own variables. They may refer to each other.
    required: true
    type: str
"""

EXAMPLES = r"""
- name: Show what the steps get for a member
  ansible.builtin.debug:
    msg: "{{ lookup('progressive.rollout.member', 'arguments', own='api') }}"
  vars:
    arguments: {service: api, replicas: "{{ rollout_replicas }}", budget: {max_surge: "{{ surge }}"}}
    api: {rollout_replicas: 4, surge: 1}
"""

RETURN = r"""
_raw:
  description: The arguments. Own variables that begin with C(rollout_) are among them.
  type: list
  elements: dict
"""

import typing as t
from collections.abc import Mapping

from ansible.plugins.lookup import LookupBase
from ansible.template import Templar, trust_as_template

PREFIX = "rollout_"
REVISION = "rollout_revision"


class LookupModule(LookupBase):
    """The lookup."""

    def run(
        self, terms: list[t.Any], variables: Mapping[str, t.Any] | None = None, **kwargs: t.Any
    ) -> list[dict[str, t.Any]]:
        """Return the arguments in each variable."""
        own, inside = str(kwargs["own"]), dict(variables or {})
        names = [str(name) for name in self._value(f"{own} | list", inside)]
        places = {name: f"{own}[{name!r}]" for name in names}
        inside |= {n: _template(place) for n, place in places.items() if n != REVISION}
        if REVISION in places:  # it may contain the revision that is given for all members
            inside[REVISION] = self._value(places[REVISION], inside)
        listed = {n.removeprefix(PREFIX): n for n in names if n.startswith(PREFIX)}
        given = {name: self._value(variable, inside) for name, variable in listed.items()}
        return [{**self._value(str(term), inside), **given} for term in terms]

    def _value(self, expression: str, variables: dict[str, t.Any]) -> t.Any:
        return Templar(self._loader, variables).template(_template(expression))


def _template(expression: str) -> str:
    return trust_as_template("{{ " + expression + " }}")
