# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/gate.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gate
short_description: Wait until something lets the rollout pass
version_added: 0.1.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Keeps the fleet of the rollout under way as it is, and in repair, until a gate lets it pass, an operator says so (M(progressive.rollout.control)),
    or the C(timeout) of the gate is over.
  - Where the gate fails it ends as O(on_failure) says.
  - Changes nothing if no rollout is under way.
options:
  gate:
    description:
      - What has to let the rollout pass. Lists in O(gates), and gates in O(steps), have the same options.
      - In C(url), C(file) and C(command), V({service}), V({revision}), V({previous}) and V({id}) are filled in. Write
        V({{) or V(}}) for a brace.
    type: dict
    required: true
    suboptions:
      driver:
        description: Name of the driver.
        type: str
        required: true
      interval:
        description: 'I(analysis): How often each metric is measured. A duration.'
        type: raw
        default: 10s
      timeout:
        description: How long the rollout waits for the gate. V(1d) if not given. A duration, or V(unlimited).
        type: raw
      on_timeout:
        description: What happens then. As O(on_failure) says if not given.
        type: str
        choices:
          rollback: Roll back.
          hold: Stop until a person decides.
          promote: Let the rollout pass.
      on_error:
        description: What happens if it cannot be asked.
        type: str
        choices: {fail: The gate fails., ignore: It lets the rollout pass.}
      duration:
        description: 'I(pause): How long the gate waits until it passes. A duration. Required.'
        type: raw
      file:
        description: 'I(approval): File on the controller. The gate passes once the file exists, and fails if its first
          word is V(no) or V(rejected). An absolute path.'
        type: str
      url:
        description:
          - 'I(approval): URL that is asked by GET. 2xx passes, 202, 404, 409 and 425 are not yet, anything else fails.'
          - 'I(web): URL of the web service. Required.'
        type: str
      method:
        description: 'I(web): HTTP method. V(GET) sends nothing.'
        type: str
        choices: [POST, GET]
        default: POST
      headers:
        description: 'I(web): Headers of the request.'
        type: dict
        default: {}
      secret:
        description: 'I(web): Key that signs the body. The header C(X-Rollout-Signature) has C(sha256=) and its HMAC.'
        type: str
      answer_within:
        description:
          - 'I(web): How long an answer may take. A duration. V(10s) if not given.'
          - 'I(command): How long the command may take. A duration. V(60s) if not given.'
        type: raw
      retries:
        description: 'I(web): How often a request is repeated that had no answer, or 5xx. 0 to 10.'
        type: int
        default: 2
      validate_certs:
        description: 'I(web): Whether the certificate has to be valid.'
        type: bool
        default: true
      ca_path:
        description: 'I(web): File on the controller with the authorities that may have signed the certificate.'
        type: str
      command:
        description: 'I(command): The program and its arguments. Required.'
        type: list
        elements: str
      host:
        description: 'I(command): Inventory host that the command runs on, the controller if not given.'
        type: str
      metrics:
        description: 'I(analysis): What is measured. If not given, errors and, where the load balancers measure it, latency,
          as the load balancers count them.'
        type: list
        elements: dict
        suboptions:
          name:
            description: Name of the metric.
            type: str
            required: true
          driver:
            description: Driver that measures it.
            type: str
            default: load_balancer
          judge:
            description: How it is judged. V(threshold) with a condition, else V(sequential) if not given.
            type: str
            choices:
              threshold: Checks conditions on each measurement.
              sequential: Compares new and stable instances after each measurement, and may decide at any of them.
              kayenta: Compares new and stable instances at the end, as Kayenta does.
          interval:
            description: How often it is measured. As the analysis says if not given. A duration.
            type: raw
          initial_delay:
            description: How long after the start of the analysis the first measurement is. A duration.
            type: raw
            default: 0
          count:
            description: Number of measurements. As the analysis says if not given. At least 1.
            type: int
          consecutive_error_limit:
            description: Number of failed measurements in a row that are tolerated.
            type: int
            default: 4
          dry_run:
            description: Whether it is only measured and reported.
            type: bool
            default: false
          success_condition:
            description: 'I(threshold): Expression over V(result) that a success fulfils (V(result[0] >= 0.99)).'
            type: str
          failure_condition:
            description: 'I(threshold): Expression over V(result) that a failure fulfils. A result that fits neither condition
              is inconclusive, and so is a NaN that no condition asks about with V(is_nan).'
            type: str
          failure_limit:
            description: 'I(threshold): Number of failures that are tolerated, V(-1) for any. V(0) if not given.'
            type: int
          inconclusive_limit:
            description: 'I(threshold): Number of inconclusive results that are tolerated, V(-1) for any.'
            type: int
            default: 0
          consecutive_failure_limit:
            description: 'I(threshold): Number of failures in a row that are tolerated, V(-1) for any.'
            type: int
          consecutive_success_limit:
            description: 'I(threshold): Number of successes in a row that pass at once, V(0) for none.'
            type: int
            default: 0
          alpha:
            description: 'I(sequential): Probability of a false alarm, over all measurements. Between 0 and 0.5.'
            type: float
            default: 0.02
          tolerance:
            description: 'I(sequential): How many times the errors, or the seconds, of the stable instances are tolerated.
              More than 0.'
            type: float
            default: 1.2
          quantile:
            description: 'I(sequential): Quantile of the seconds that is compared. Between 0 and 1.'
            type: float
            default: 0.5
          detect:
            description: 'I(sequential): Rate of errors that must be detected. It says how many requests a verdict takes.
              Between 0 and 1.'
            type: float
            default: 0.05
          direction:
            description: 'I(kayenta): Change that is bad.'
            type: str
            choices: [increase, decrease, either]
            default: either
          nan_strategy:
            description: 'I(kayenta): Whether a NaN is removed, or replaced by 0.'
            type: str
            choices: [remove, replace]
            default: remove
          outliers:
            description: 'I(kayenta): Whether outliers are kept or removed.'
            type: str
            choices: [keep, remove]
            default: keep
          outlier_factor:
            description: 'I(kayenta): How many times the interquartile range makes an outlier. More than 0.'
            type: float
            default: 3.0
          critical:
            description: 'I(kayenta): Whether its failure alone fails the analysis.'
            type: bool
            default: false
          must_have_data:
            description: 'I(kayenta): Whether no data is a failure.'
            type: bool
            default: false
          muted:
            description: 'I(kayenta): Whether it does not count.'
            type: bool
            default: false
          effect_size:
            description: 'I(kayenta): Measure of the difference, for the four options that follow.'
            type: str
            choices: [mean_ratio, cles]
            default: mean_ratio
          allowed_increase:
            description: 'I(kayenta): Effect of an increase that is tolerated. More than 0.'
            type: float
          allowed_decrease:
            description: 'I(kayenta): Effect of a decrease that is tolerated. More than 0.'
            type: float
          critical_increase:
            description: 'I(kayenta): Effect of an increase that alone fails the analysis. More than 0.'
            type: float
          critical_decrease:
            description: 'I(kayenta): Effect of a decrease that alone fails the analysis. More than 0.'
            type: float
          group:
            description: 'I(kayenta): Group of the metric, for C(weights).'
            type: str
            default: metrics
          of:
            description: 'I(load_balancer): What is compared, as the load balancers count it.'
            type: str
            choices:
              errors: Answers of 5xx, and requests without an answer.
              latency: The time to the answer.
            default: errors
          address:
            description: 'I(prometheus): URL of Prometheus (V(https://prometheus:9090)). Required.'
            type: str
          query:
            description: 'I(prometheus): Expression in PromQL, for the present value.'
            type: str
          errors:
            description: 'I(prometheus): Expression in PromQL for the errors since the analysis began. Goes with C(requests),
              instead of C(query).'
            type: str
          requests:
            description: 'I(prometheus): Expression in PromQL for the requests since the analysis began.'
            type: str
          label:
            description: 'I(prometheus): Label that tells the revisions apart.'
            type: str
            default: revision
          username:
            description: 'I(prometheus): User for basic authentication. Goes with C(password).'
            type: str
          password:
            description: 'I(prometheus): Password of the user.'
            type: str
          bearer_token:
            description: 'I(prometheus): Token, instead of a user.'
            type: str
          headers:
            description: 'I(prometheus, web): Headers of the request.'
            type: dict
            default: {}
          answer_within:
            description:
              - 'I(prometheus, web): How long an answer may take. A duration. V(10s) if not given.'
              - 'I(command): How long the command may take. A duration. V(60s) if not given.'
            type: raw
          validate_certs:
            description: 'I(prometheus, web): Whether the certificate has to be valid.'
            type: bool
            default: true
          ca_path:
            description: 'I(prometheus, web): File on the controller with the authorities that may have signed the certificate.'
            type: str
          client_cert:
            description: 'I(prometheus, web): File on the controller with a client certificate.'
            type: str
          client_key:
            description: 'I(prometheus, web): File on the controller with its key, if C(client_cert) does not have it.'
            type: str
          url:
            description: 'I(web): URL of a service that answers with JSON. Judges that compare need a mapping with V(new)
              and V(stable) there. Required.'
            type: str
          method:
            description: 'I(web): HTTP method.'
            type: str
            choices: [GET, POST]
            default: GET
          body:
            description: 'I(web): What V(POST) sends, a text, or anything else as JSON.'
            type: raw
          path:
            description: 'I(web): Path of the result in the answer (V(data.items[0].value)). V($) is all of it.'
            type: str
            default: $
          command:
            description: 'I(command): The program and its arguments. Required.'
            type: list
            elements: str
          host:
            description: 'I(command): Inventory host that the command runs on, the controller if not given.'
            type: str
      count:
        description: 'I(analysis): Number of measurements of each metric.'
        type: int
        default: 30
      pass:
        description: 'I(analysis): Score of the judge V(kayenta) that passes. A lower one waits for a person. 0 to 100.'
        type: float
        default: 95
      marginal:
        description: 'I(analysis): Score of the judge V(kayenta) below which the analysis fails. 0 to 100.'
        type: float
        default: 75
      weights:
        description: 'I(analysis): Weights of the groups of metrics of the judge V(kayenta), in percent. Equal if not
          given.'
        type: dict
      probe:
        description: 'I(analysis): Synthetic requests to the new instances in service, for times of little traffic. They
          are counted with those of clients. A mapping as O(health), with its C(http), and its C(interval) between two
          requests to an instance.'
        type: dict
      baseline:
        description: 'I(analysis): Whether fresh instances of the stable revision are started to compare with, as many
          as there are new ones. Only in O(steps). They are started before the first new one, and with the settings of
          this rollout, so that only the revision differs.'
        type: bool
        default: false
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
    details: In check mode only. What a walk really did is told by its progress lines and the timeline.
seealso:
  - module: progressive.rollout.control
  - module: progressive.rollout.promote
"""

EXAMPLES = r"""
- name: Let the new revision serve for a moment before going on
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
  description: Whether the run ended because there is nothing to do but wait for somebody. Run again, it goes on.
  returned: when it is true
  type: bool
msg:
  description: What is waited for.
  returned: when the rollout was parked
  type: str
next:
  description: What the rollout would do now. As RV(progressive.rollout.plan#module:next).
  returned: in check mode
  type: dict
"""
