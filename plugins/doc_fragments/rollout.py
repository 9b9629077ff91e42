# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documentation of every step shares: the options that each of them takes."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  service:
    description:
      - Name of the service. Lower-case letters, digits, V(-) and V(_), at most 63, beginning and ending with a letter or digit.
      - It becomes part of file and server names.
    type: str
    required: true
  revision:
    description:
      - The revision to roll out. Letters, digits and V(.), V(_), V(+), V(-), at most 128, beginning with a letter or digit.
      - Quote it (V("2.10")). A number such as V(2.10) would be V(2.1), and is refused.
      - Steps that do not begin a rollout take the revision under way, or the stable one, where none is given.
    type: str
  replicas:
    description:
      - How many instances there shall be, at least 1.
    type: raw
  strategy:
    description:
      - How to walk from the old revision to the new one.
    type: str
    default: rolling
    choices:
      rolling: One walk with a sliding window, from all old to all new.
  budget:
    description:
      - How many instances may be over and under O(replicas) while a rollout runs.
      - Amounts are whole numbers (V(3)) or percentages of O(replicas) (V("25%")). Surge rounds up, unavailable rounds down.
        Where both round to 0, one instance may be unavailable.
    type: dict
    default: {max_surge: "25%", max_unavailable: 0}
    suboptions:
      max_surge:
        description:
          - How many instances there may be beyond O(replicas), counted with everything in flight. V("25%") if not given.
        type: raw
      max_unavailable:
        description:
          - How many of O(replicas) may be missing. V(0) if not given. Not 0 together with O(budget.max_surge=0).
        type: raw
      max_in_flight:
        description:
          - Stands alone and for the other two. That many extra, none unavailable, and no more than that many new ones
            on their way at the same time.
        type: raw
  platform:
    description:
      - Where instances live. C(driver) names the platform driver, the other keys are its options.
        A driver of another collection is named C(namespace.collection.driver).
      - Every step needs it, except M(progressive.rollout.plan) with its option C(fleet).
      - C(driver=process) runs plain processes on inventory hosts. Its options follow.
      - C(hosts) (required) is an inventory pattern.
      - C(command) (required) is a list, the program and its arguments. The program has to stay in the foreground.
      - C(ports) (required) are the ports instances may listen on, V(8100-8199). There have to be enough of them on all
        hosts together for O(replicas) and the surge.
      - C(env) is a mapping of environment variables. C(SERVICE), C(REVISION), C(INSTANCE), C(SLOT), C(ADDRESS) and C(PORT) are always set.
      - C(cwd) is the working directory, V(/) if not given.
      - C(path) is where records and logs are kept on each host, V(/var/lib/rollout) if not given.
      - C(stop_signal) asks an instance to stop, V(TERM) if not given. After C(stop_timeout), V(10s) if not given, it is killed.
      - In C(command), C(env) and C(cwd), V({revision}), V({port}), V({service}), V({host}), V({address}), V({slot}) and V({instance})
        are filled in. Write V({{) or V(}}) for a brace.
    type: dict
  traffic:
    description:
      - What sends requests to the instances. C(driver) names the traffic driver, the other keys are its options.
      - C(driver=none) is for services that nothing balances. It has no options.
      - C(driver=haproxy) drives HAProxy 2.6 or later (2.4 with C(slots)) through its Runtime API. Its options follow.
      - C(hosts) is an inventory pattern, the load balancers' hosts. Without it the sockets are reached from the controller.
      - C(socket) is the Runtime API's socket with C(level admin), a path or V(host:port), or a list of them, V(/run/haproxy/admin.sock) if not given.
      - C(backend) (required) is the name of the backend.
      - C(preview) is the name of another backend, for a look at instances that requests of the service do not reach yet.
      - C(drain_timeout) is how long requests in flight are waited for, V(30s) if not given. After it the instance is stopped all the same.
      - C(slots) is the beginning of the names of prepared servers. Without it servers are added and deleted as needed.
      - C(state_file) is a file on the load balancer's host that the state of the servers is saved to after each change,
        for C(load-server-state-from-file). It wants C(hosts) and one socket each.
      - C(driver=envoy) drives Envoy through files that it watches and its admin interface. Its options follow.
      - C(hosts) is an inventory pattern, the Envoys' hosts. Without it Envoy is on the controller.
      - C(path) (required) is the directory that Envoy watches, which the rollout's user may write to.
      - C(admin) is Envoy's admin interface as seen from its host, V(127.0.0.1:9901) if not given.
      - C(listen) (required) is the address and port that clients of the service connect to.
      - C(preview) is another address and port, for a look at instances that those clients do not reach yet.
      - C(drain_timeout) is the same as for HAProxy.
    type: dict
    default: {driver: none}
  health:
    description:
      - How an instance is asked whether it is ready. Give O(health.http) or O(health.tcp). Without either, running is ready.
      - The load balancers' own checks of instances are set up from the same values.
    type: dict
    default: {}
    suboptions:
      http:
        description: The path of a GET request.
        type: str
      tcp:
        description: Whether an accepted connection is enough.
        type: bool
      interval:
        description: How often an instance is asked. New ones are asked more often until they are ready.
        type: raw
        default: 500ms
      timeout:
        description: How long an answer may take.
        type: raw
        default: 2s
      rise:
        description: How many answers in a row make an instance ready.
        type: int
        default: 2
      fall:
        description: How many failures in a row make it not ready.
        type: int
        default: 3
      deadline:
        description: How long a new instance may take to become ready. As long as O(progress_deadline) if not given.
        type: raw
      status:
        description: The status codes that pass, one, a list, or a range.
        type: raw
        default: 200-299
      body:
        description: A text that the answer has to contain.
        type: str
      headers:
        description: Headers of the request.
        type: dict
        default: {}
      tls:
        description: Whether to speak TLS.
        type: bool
        default: false
      validate_certs:
        description: Whether the certificate has to be valid.
        type: bool
        default: true
      port:
        description: Another port than the instance's own.
        type: int
      from:
        description: Who asks.
        type: str
        default: controller
        choices:
          controller: The machine that runs the playbook.
          host: The host that the instance is on, through its connection.
  min_ready:
    description:
      - How long an instance has to have been ready before it counts as available.
      - Durations are seconds (V(90)) or a number with V(ms), V(s), V(m), V(h) or V(d) (V(10m)).
    type: raw
    default: 0
  progress_deadline:
    description:
      - How long a rollout may go without progress before it fails, counted from the last progress. A duration.
    type: raw
    default: 10m
  failure_limit:
    description:
      - How many new instances may fail without progress in between. That many end the rollout.
    type: raw
    default: 3
  on_failure:
    description:
      - What a failed rollout does.
    type: str
    default: rollback
    choices:
      rollback: Walk back to the revision before.
      hold: Stop where it is until a person decides.
      continue: Go on in spite of failing instances until the progress deadline, then leave the fleet as it is.
  store:
    description:
      - Where the journal and the lease are kept. C(driver) names the store driver, the other keys are its options.
      - C(driver=file) keeps them in files. Its options follow.
      - C(path) is their directory, V(/var/lib/rollout) if not given.
      - C(host) is the inventory host that keeps them, the controller if not given. AWX needs one, since its controllers are thrown away.
    type: dict
    default: {driver: file, path: /var/lib/rollout}
  lease:
    description:
      - How long the right to change the service outlives its last use. A duration, at least 5 seconds.
      - Another run waits that long at most for one that died.
    type: raw
    default: 60
attributes:
  action:
    description: Runs on the controller, as an action plugin, and reaches hosts through their own connections.
    support: full
  action_group:
    description: Use C(group/progressive.rollout.steps) in C(module_defaults) to set the options of every step at once.
    support: full
    membership: [progressive.rollout.steps]
  async:
    description: Can be run with C(async).
    support: none
    details: The step runs on the controller and ends with its playbook.
  check_mode:
    description: Says what it would do and touches nothing.
    support: full
"""
