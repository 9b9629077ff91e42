# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/gate.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gate
short_description: Wait until a gate lets the rollout pass
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Keeps the fleet of the rollout in progress as it is, repairing it where needed, until a gate or an operator
    (M(progressive.rollout.control)) lets the rollout pass, or the gate's C(timeout) is over.
  - If the gate fails, the rollout ends as O(on_failure) says.
  - Changes nothing if no rollout is in progress.
options:
  gate:
    description:
      - What must let the rollout pass. The lists in O(gates) and the gates in O(steps) have the same options.
      - In C(url), C(file) and C(command), V({service}), V({revision}), V({previous}) and V({id}) are replaced by their
        values. Write V({{) or V(}}) for a literal brace.
    type: dict
    required: true
    suboptions:
      driver:
        description: Name of the driver.
        type: str
        required: true
      interval:
        description:
          - How long after an answer the gate is asked again. V(5s) if not given. A duration.
          - 'I(analysis): How often each metric is measured. A duration. V(10s) if not given.'
        type: raw
      timeout:
        description: How long the rollout waits for the gate. V(1d) if not given. A duration, or V(unlimited).
        type: raw
      on_timeout:
        description: What happens after that time. As O(on_failure) says if not given.
        type: str
        choices:
          rollback: Roll back.
          hold: Stop until an operator decides.
          promote: Let the rollout pass.
      on_error:
        description: What happens if the gate cannot be asked.
        type: str
        choices: {fail: The gate fails., ignore: It lets the rollout pass.}
      metrics:
        description:
          - 'I(analysis): What is measured. If not given, errors and, where the load balancers measure or log it, latency.'
          - As C(metrics) of O(analysis).
        type: list
        elements: dict
      count:
        description: 'I(analysis): Number of measurements of each metric. Up to six more are taken while a verdict waits.'
        type: int
        default: 30
      alpha:
        description: 'I(analysis): Probability that a good revision fails, over all metrics, instances and measurements
          of the judge V(sequential). The analyses of a rollout share the greatest one. Between 0 and 0.5.'
        type: float
        default: 0.02
      on_enough:
        description: 'I(analysis): What happens if an operator was asked because there was too little data, and now there
          is enough and all is well.'
        type: str
        choices:
          pass: It passes by itself.
          ask: The operator is notified, and still has to decide.
        default: pass
      pass:
        description: 'I(analysis): Score of the judge V(kayenta) that passes. A lower one waits for an operator. 0 to
          100.'
        type: float
        default: 95
      marginal:
        description: 'I(analysis): Score of the judge V(kayenta) below which the analysis fails. 0 to 100.'
        type: float
        default: 75
      weights:
        description: 'I(analysis): Weights of the metric groups for the judge V(kayenta), in percent. Equal if not given.'
        type: dict
      probe:
        description: 'I(analysis): Synthetic requests to the new instances in service, for times of little traffic. They
          are counted together with those of clients. A mapping like O(health), with its C(http), and with its C(interval)
          as the time between two requests to an instance.'
        type: dict
      baseline:
        description: 'I(analysis): Whether fresh instances of the stable revision are started for comparison, as many
          as there are new ones. Only in O(steps). They are started before the first new one, and with the settings of
          this rollout, so that only the revision differs.'
        type: bool
        default: false
      dry_run:
        description: 'I(analysis): Whether the analysis is only measured, judged and reported. It then never fails the
          rollout, and never asks an operator.'
        type: bool
        default: false
      file:
        description: 'I(approval): File on the controller. The gate passes once the file exists, and fails if its first
          word is V(no) or V(rejected). An absolute path.'
        type: str
      url:
        description:
          - 'I(approval): URL that is polled with GET. 2xx passes, 202, 404, 409 and 425 mean not yet, anything else fails.'
          - 'I(web): URL of the web service. Required.'
        type: str
      command:
        description: 'I(command): The program and its arguments. Required.'
        type: list
        elements: str
      host:
        description: 'I(command): Inventory host that the command runs on, the controller if not given.'
        type: str
      answer_within:
        description:
          - 'I(command): How long the command may take. A duration. V(60s) if not given.'
          - 'I(web): How long an answer may take. A duration. V(10s) if not given.'
        type: raw
      duration:
        description: 'I(pause): How long the gate waits before it passes. A duration. Required.'
        type: raw
      longest:
        description: 'I(prepare): How long to wait for a server that is away. The preparation of a rollout waits for O(progress_deadline).
          A duration.'
        type: raw
        default: 0
      point:
        description: 'I(release): Where the member is. O(release) sets it. Required.'
        type: str
        choices: [begin, leave, promotion, retire, retreat]
      step:
        description: 'I(release): The step that it leaves. O(release) sets it.'
        type: str
      method:
        description: 'I(web): HTTP method. V(GET) sends nothing.'
        type: str
        choices: [POST, GET]
        default: POST
      headers:
        description: 'I(web): Request headers.'
        type: dict
        default: {}
      secret:
        description: 'I(web): Key that signs the body. The header C(X-Rollout-Signature) has C(sha256=) and its HMAC.'
        type: str
      retries:
        description: 'I(web): How many times a request is repeated if it gets no answer, or 5xx. 0 to 10.'
        type: int
        default: 2
      validate_certs:
        description: 'I(web): Whether the certificate must be valid.'
        type: bool
        default: true
      ca_path:
        description: 'I(web): File on the controller with the CA certificates that the certificate is verified against.'
        type: str
  label:
    description: Name of the gate in messages and in the journal.
    type: str
    default: gate
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: partial
    details: In check mode only. Progress lines and the timeline show what was really done.
seealso:
  - module: progressive.rollout.control
  - module: progressive.rollout.promote
"""

EXAMPLES = r"""
- name: Let the new revision serve for a moment before continuing
  progressive.rollout.gate:
    service: shop
    revision: "2.4.1"
    replicas: 4
    gate: {driver: pause, duration: 1s}
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
parked:
  description: Whether the run ended because the rollout is waiting for an operator. Run again to continue.
  returned: when it is true
  type: bool
msg:
  description: What the rollout is waiting for.
  returned: when the rollout was parked
  type: str
next:
  description: What the rollout would do now. As RV(progressive.rollout.plan#module:next).
  returned: in check mode
  type: dict
"""
