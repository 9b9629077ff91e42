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
      - How many instances there shall be, at least 1. V(current) for as many as there are.
      - Or a mapping with C(min), V(1) if not given, and C(max), for as many as there are within these bounds. Where nothing is deployed it is C(min),
        and with a C(min) of 0 it is C(max).
      - Where fewer are asked for than run, the others leave at the promotion.
    type: raw
  strategy:
    description:
      - How to walk from the old revision to the new one.
    type: str
    default: rolling
    choices:
      rolling: One walk with a sliding window, from all old to all new.
      canary: As O(steps) says, with gates between them.
      blue_green: A full new set without requests, then one switch. The old set stays for O(hold).
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
      - All drivers of inventory hosts take what follows.
      - C(hosts) (required) is an inventory pattern.
      - C(ports) (required) are the ports instances may listen on, V(8100-8199). There have to be enough of them on all
        hosts together for O(replicas) and the surge.
      - C(env) is a mapping of environment variables. C(SERVICE), C(REVISION), C(INSTANCE), C(SLOT), C(ADDRESS) and C(PORT) are always set.
      - C(path) is where records and logs are kept on each host, V(/var/lib/rollout) if not given.
      - An instance that was asked to stop is killed after C(stop_timeout), V(10s) if not given.
      - C(zone) is the name of a variable of the hosts (V(rack)). Instances are spread over its values first, and over hosts then.
      - C(hooks) are commands of yours on the instance's host, each a list, with its environment. C(hooks.before_start) runs before an instance is
        started, which fails if it does not end with 0; C(hooks.after_stop) runs when one is gone, and what goes wrong there stands in its log. Each
        has C(hooks.timeout), V(10s) if not given. They may run twice, after a run that was killed.
      - C(prepare_timeout), V(10m) if not given, is how long a host may take to get what a revision needs.
      - In texts, V({revision}), V({port}), V({service}), V({host}), V({address}), V({slot}) and V({instance})
        are filled in. Write V({{) or V(}}) for a brace.
      - C(driver=process) runs plain processes. Its other options follow.
      - C(command) (required) is a list, the program and its arguments. The program has to stay in the foreground.
      - C(cwd) is the working directory, V(/) if not given.
      - C(stop_signal) asks an instance to stop, V(TERM) if not given.
      - C(driver=systemd) runs units of a systemd template, as root. Its other options follow.
      - C(unit) is a template of your own, V(shop@.service), which has to read C(EnvironmentFile=/var/lib/rollout/env/%n). Without it we write
        one, with what follows.
      - C(command) is a list, the program and its arguments. It is required without C(unit).
      - C(cwd) is the working directory, V(/) if not given. C(user) is whom it runs as, V(root) if not given.
      - C(notify) is for a program that tells systemd itself when it is ready, C(Type=notify).
      - C(stop_signal) is the same as for processes, V(TERM) if not given.
      - C(driver=podman) and C(driver=docker) run containers, by the program of that name on the hosts. Their other options follow.
      - C(image) (required) is the image, V(registry.example.com/shop:{revision}) or V(registry.example.com/shop@sha256:{revision}).
        Before anything is touched it is pulled on every host, and has to be the same everywhere.
      - C(pull) is V(missing), V(always) or V(never). V(missing) if not given.
      - C(command) is a list, what follows the image. Without it the image says what is run.
      - C(container_port) is where the container listens. It is published at the instance's address and port, and C(ADDRESS) and C(PORT)
        are where to listen. With C(network=host) it is left out.
      - C(network) is the network, V(host) for the host's own.
      - C(volumes), C(env_files) and C(secrets) are lists, as C(--volume), C(--env-file) and C(--secret) take them. Docker has no secrets.
        Files are the host's.
      - C(labels) and C(ulimits) are mappings, as C(--label) and C(--ulimit) take them.
      - C(memory) (V(512m)), C(cpus) (V(1.5)) and C(pids) are limits. C(user) and C(runtime) are names. As the program takes them.
      - C(healthcheck) is a check by the program itself, a mapping with C(command) (a text for the image's shell), C(interval), C(timeout),
        C(start_period) and C(retries), or V(none) for not even the image's. While it has not passed, the instance is not ready.
      - C(restart) is what the program does with a container that ended, V(no), V(on-failure), V(on-failure:3), V(unless-stopped) or
        V(always). V(no) if not given.
      - C(stop_signal) is the same as for processes, V(TERM) if not given.
      - C(keep_revisions) is of how many revisions that do not run any more each host keeps a stopped container, and its image with it.
        1 if not given. With C(restart=always), which would start them again with the host, it is 0, and more are refused.
      - C(args) is a list of further arguments of the program's C(run).
      - C(driver=static) is for instances that tasks of your own deploy where they are. It starts and stops none. Its options follow.
      - C(hosts) (required) is an inventory pattern. There is an instance on each of them, at each port.
      - C(port) (required) is the port they listen on, or a list of ports.
    type: dict
  traffic:
    description:
      - What sends requests to the instances. C(driver) names the traffic driver, the other keys are its options.
      - C(driver=none) is for services that nothing balances. It has no options.
      - C(driver=haproxy) drives HAProxy 2.6 or later (2.4 with C(slots)) through its Runtime API. Its options follow.
      - C(hosts) is an inventory pattern, the load balancers' hosts. Without it the sockets are reached from the controller.
      - C(socket) is the Runtime API's socket with C(level admin), a path or V(host:port), or a list of them, V(/run/haproxy/admin.sock) if not given.
      - C(backend) (required) is the name of the backend.
      - C(preview) is the name of another backend, which has the new instances of a rollout alone, from when they are ready to its end.
      - C(match) is refused; requests are led to C(preview) by a C(use_backend) of the frontend.
      - C(mirror) is refused, since HAProxy copies no requests.
      - C(sticky) is refused; clients are bound by a C(stick) of the backend.
      - C(drain_timeout) is how long requests in flight are waited for, V(30s) if not given. After it the instance is stopped all the same.
      - C(slots) is the beginning of the names of prepared servers. Without it servers are added and deleted as needed.
      - C(ca_path) is a file with the CA certificates that those of instances are verified against (O(health.tls)). HAProxy's configuration
        has to name it, too. The system's CA certificates if not given.
      - C(state_file) is a file on the load balancer's host that the state of the servers is saved to after each change,
        for C(load-server-state-from-file). It wants C(hosts) and one socket each.
      - C(path) is a directory, made where it is missing, for the locks and epochs that keep a late command of an older run from changing
        anything, V(/var/lib/rollout) if not given. It is on C(hosts), on the controller without them.
      - C(driver=envoy) drives Envoy through files that it watches and its admin interface. Its options follow.
      - C(hosts) is an inventory pattern, the Envoys' hosts. Without it Envoy is on the controller.
      - C(path) (required) is the directory that Envoy watches, which the rollout's user may write to. It belongs to the group that Envoy
        runs as.
      - C(admin) is Envoy's admin interface as seen from its host, V(127.0.0.1:9901) if not given.
      - C(listen) (required) is the address and port that clients of the service connect to.
      - C(preview) is another address and port, which lead to the new instances of a rollout alone, from when they are ready to its end.
      - C(match) has C(header) or C(cookie), a name, and C(value). Requests that carry it go to the new instances alone, from when
        they are ready to the end of the rollout, whatever the share; all others as without it. While no new instance is healthy,
        they go where the others go.
      - C(mirror) is how many percent of the requests are sent to the new instances as well, as long as these are dark. The answers
        are thrown away.
      - C(retry) is to how many other instances, one after the other, a request is sent that the first did not answer, V(3) if not given.
        Connections that failed are tried again for all requests, others for C(GET) and C(HEAD) only.
      - C(sticky) has C(cookie), the name of a cookie that Envoy binds a client to its instance with, as long as that is in rotation.
      - C(ca_path) is a file on the Envoys' hosts with the CA certificates that those of instances are verified against (O(health.tls)).
      - C(drain_timeout) is the same as for HAProxy.
      - C(driver=nginx) drives nginx through a file that it includes, and reloads it. Its options follow.
      - C(hosts) is an inventory pattern, the nginxes' hosts. Without it nginx is on the controller.
      - C(path) is the directory of the files that nginx includes, V(/etc/nginx/rollout) if not given.
      - C(upstream) is the name of the service's upstream there, and of its file. O(service) if not given.
      - C(config) is nginx's configuration, V(/etc/nginx/nginx.conf) if not given.
      - C(pid) is the file with the pid of its master process, V(/run/nginx.pid) if not given.
      - C(status) is an address and a port that nothing else uses, V(127.0.0.1:9180) if not given. There nginx says what it serves.
      - C(drain_timeout) is how long requests in flight are waited for, V(30s) if not given.
      - C(match), C(mirror) and C(sticky) are refused. nginx has no way to the new instances alone, and binds nobody to an instance.
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
      driver:
        description: A check of another collection, as V(acme.shop.grpc), with its own options.
        type: str
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
      - Or a mapping. C(in_a_row) is that number, V(3) if not given. C(total) is how many may fail in the whole rollout, whatever succeeds in between,
        as a number or a percentage of O(replicas) (V("25%")), rounded up. Not bounded if not given.
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
  watch_new:
    description:
      - How long a new instance that became ready is watched. One that breaks before is not made good by others that have just become ready,
        so that a revision that starts and then crashes, over and over, is recognised. A duration.
    type: raw
    default: 2m
  on_stable_lost:
    description:
      - What a canary or blue-green rollout does when no instance of the stable revision serves any more, and new ones are ready.
      - As long as any of them serves, those that fail are replaced whatever this says.
    type: str
    default: repair
    choices:
      repair: Start instances of the stable revision again.
      promote: Go straight to the promotion, without any more pauses and gates.
      hold: Stop where it is until a person decides.
  headroom:
    description:
      - How many times its usual number of requests an instance of the stable revision can take while a rollout goes back. As soon as those in
        service can carry all requests that way, the revision that is taken back gets none.
      - 1 or more, or V(0) for never more than usual. Then that revision keeps its requests until the budget lets it go.
    type: raw
    default: 1.25
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
      - How long the right to change the service outlives its last use. A duration, at least 5 seconds, at most an hour.
      - Another run waits that long at most for one that died.
    type: raw
    default: 60
  steps:
    description:
      - The steps of O(strategy=canary), a list. What comes after the last one is all new, none old.
      - Or a mapping with C(group_size) (V(1) if not given), C(cycles) (V(3)), C(acceptance) (V(none), V(timed) or V(checks)), C(wait) (for V(timed)),
        C(gates) (a list, for V(checks)) and C(allowed_failures) (V(0)). So many groups of that size, one after the other, then all others.
      - Each item of the list has exactly one of the following.
      - C(set_weight) is the percentage of requests that goes to new instances, 1 to 100, each time more than before. There are as many new
        instances as that takes, or as C(set_replicas) said.
      - C(set_replicas) is how many new instances there are, a whole number or a percentage of O(replicas). Without any C(set_weight)
        their number is their share.
      - C(instance_weight) is the percentage of instances that are new, with one more than O(replicas) meanwhile. Waits for a person after it,
        unless a C(pause) follows.
      - C(pause) is a duration, a mapping with C(duration), or an empty mapping, which waits for a person; that one takes
        C(timeout) and C(on_timeout) as a gate does.
      - C(gate) is one gate. See O(gates) for what it takes.
      - C(analysis) is the gate that judges by measurements. See O(analysis) for what it takes, and C(driver=analysis) of O(gates).
      - Beside it there may be C(name); C(on_failure), which goes before O(on_failure) for this step; and C(reversible), which is V(false) where
        there is no way back from this step on, so that a failure holds.
    type: raw
    default: []
  gates:
    description:
      - What has to let a rollout pass at which moment, whatever the O(strategy). Each moment has a list of gates, asked one after the other.
      - A gate is a mapping. C(driver) names the gate driver, the other keys are its options, but for these four, which every gate takes.
      - C(interval) is how long after an answer it is asked again, V(5s) if not given.
      - C(timeout) is how long the rollout waits for it, V(1d) if not given, or V(unlimited).
      - C(on_timeout) is what then happens, V(rollback), V(hold) or V(promote), which lets it pass. As O(on_failure) says if not given.
      - C(on_error) is what it comes to where it cannot be asked, V(fail), the default, or V(ignore), which lets it pass.
      - C(driver=pause) passes after a time.
      - C(duration) (required) is that time.
      - C(driver=approval) passes when a person says so, with the word V(promote) (M(progressive.rollout.control)), or in one of these ways.
      - C(file) is a file on the controller. It passes by being there. If its first word is V(no) or V(rejected), the gate fails.
      - C(url) is asked by GET. 2xx passes, 202, 404, 409 and 425 are not yet, anything else fails.
      - C(driver=web) sends the rollout to a web service as JSON. 2xx passes, 409 and 425 are not yet, anything else fails.
      - C(url) (required) is its URL.
      - C(method) is V(POST) or V(GET), which sends nothing. V(POST) if not given.
      - C(headers) are headers of the request. They are not shown.
      - C(secret) is a key that signs the body. The header C(X-Rollout-Signature) has C(sha256=) and its HMAC. It is not shown.
      - C(answer_within) is how long an answer may take, V(10s) if not given.
      - C(retries) is how often a question is repeated where there was no answer, or 5xx. 2 if not given.
      - C(validate_certs) is whether the certificate has to be valid, which it has to if not given.
      - C(ca_path) is a file with the authorities that may have signed it.
      - C(driver=command) runs a command and gives it the rollout as JSON. Exit code 0 passes, 75 is not yet, anything else fails.
      - C(command) (required) is a list, the program and its arguments.
      - C(host) is the inventory host that it runs on, the controller if not given.
      - C(answer_within) is how long it may take, V(60s) if not given.
      - C(driver=analysis) passes when what is measured says that the new revision is no worse. What cannot be measured, or says nothing at the end,
        waits for a person.
      - C(metrics) are what is measured. See O(analysis).
      - C(interval) is how often, V(10s) if not given.
      - C(count) is how many measurements there are of each, 30 if not given.
      - C(pass) and C(marginal) are scores of Kayenta's judge, 95 and 75 if not given. What is less than C(pass) waits for a person,
        and less than C(marginal) fails.
      - C(weights) are what its groups of metrics count for, in percent. All alike if not given.
      - C(probe) are requests of our own to the new instances that serve, for times of little traffic. They are counted with those of users that the
        load balancers count. A mapping in the words of O(health), with its C(http) and its C(interval) at which each of them is asked.
      - C(baseline) is whether fresh instances of the stable revision are started to compare with, as many as there are new ones. Only in O(steps).
        They are started before the first new one, and with the settings of this rollout, so what differs is the revision alone.
      - C(driver=prepare) passes when every host of O(platform) has what the revision needs, and brings it there. Has no options.
        M(progressive.rollout.replace) begins with it.
      - In C(url), C(file) and C(command), V({service}), V({revision}), V({previous}) and V({id}) are filled in.
        Write V({{) or V(}}) for a brace.
    type: dict
    default: {}
    suboptions:
      confirm_rollout:
        description: Before anything is started.
        type: list
        elements: dict
      confirm_traffic_increase:
        description: Before each rise of the new instances' share of requests.
        type: list
        elements: dict
      confirm_promotion:
        description: Before the new instances get all requests for good.
        type: list
        elements: dict
      post_rollout:
        description: When they have all requests, before the new revision is the stable one.
        type: list
        elements: dict
      rollback:
        description: All along. A gate that passes takes the rollout back, and anything else is no reason to.
        type: list
        elements: dict
  analysis:
    description:
      - What is measured all along from a step on, and judged after each measurement. A metric that fails ends the rollout as O(on_failure) says. One
        that cannot be measured waits for a person, with the fleet kept as it is.
      - Takes what C(driver=analysis) of O(gates) takes, but for C(count) and C(baseline), and these two.
      - C(starting_step) is the number of the step in O(steps) from which on it is measured. The first if not given.
      - C(bake) is how long it goes on when the new instances have all requests, before the new revision is the stable one. A duration, V(0) if not given.
        Nothing is left to compare with by then, so one of C(metrics) needs a condition.
        There is no stable revision to compare with by then, so it takes a metric with a condition.
      - C(metrics) is a list of mappings. If not given, errors and, where the load balancers measure it, latency, as the load balancers count them.
      - C(name) (required) is what a metric is called.
      - C(interval), C(count) and C(initial_delay) are durations and a number of its own.
      - C(dry_run) is whether it is only measured and told, which it is not if not given.
      - C(consecutive_error_limit) is how many measurements in a row may not be possible, 4 if not given.
      - C(judge) is how it is judged, V(threshold) where it has a condition, V(sequential) if not given.
      - C(judge=threshold) asks conditions, which are expressions over V(result), as V(result[0] >= 0.99).
      - C(success_condition) and C(failure_condition) are those. A result that fits neither is inconclusive, and so is a NaN that no condition asks
        about with V(is_nan).
      - C(failure_limit), C(consecutive_failure_limit) and C(inconclusive_limit) are how many measurements may come to that. 0 if not given, and -1 is no limit.
      - C(consecutive_success_limit) is how many in a row pass at once. None if not given.
      - C(judge=sequential) compares new and stable instances after each measurement, and may stop at any of them.
      - C(alpha) is how probable a false alarm may be, over all measurements, 0.02 if not given.
      - C(tolerance) is how many times the errors, or the seconds, of the stable instances are no reason to stop, 1.2 if not given.
      - C(detect) is the rate of errors that must not be overlooked, 0.05 if not given. It says how many requests it takes to tell.
      - C(quantile) is which one of seconds is compared, 0.5 if not given.
      - C(judge=kayenta) compares new and stable at the end, as Kayenta does.
      - C(direction) is which change is bad, V(increase), V(decrease) or V(either). V(either) if not given.
      - C(nan_strategy) is to V(remove) a NaN, as if not given, or to V(replace) it by 0.
      - C(outliers) is to V(keep), as if not given, or V(remove) those beyond C(outlier_factor) times the interquartile range, 3 if not given.
      - C(effect_size) is V(mean_ratio), as if not given, or V(cles). By it C(allowed_increase), C(allowed_decrease), C(critical_increase) and
        C(critical_decrease) are measured.
      - C(critical) is whether its failure alone fails all, C(must_have_data) whether no data is a failure, C(muted) whether it counts at all.
      - C(group) is the group it belongs to, for C(weights). V(metrics) if not given.
      - C(driver) names where a metric is measured, V(load_balancer) if not given. The other keys are its options.
      - C(driver=load_balancer) is what the load balancers count of each instance. Conditions have V(result.new) and V(result.stable), each with
        V(requests), V(errors), V(error_rate) (0 to 1) and V(latency) in seconds, since the measurement before.
      - C(of) is what is compared, V(errors), which are answers of 5xx and none, or V(latency). V(errors) if not given.
      - C(driver=prometheus) asks Prometheus. The result is a number, or a list of numbers. Judges that compare get those of both revisions.
      - C(address) (required) is where it is, as V(https://prometheus:9090).
      - C(query) is an expression of PromQL for what is now.
      - C(errors) and C(requests), instead of it, are two, for what was counted since the analysis began. They go as one query.
      - C(label) is what tells the revisions apart, V(revision) if not given.
      - C(username) and C(password) are given to it, or C(bearer_token) is.
      - C(headers) is a mapping of names to values, sent with the question. They are not shown.
      - C(answer_within) is how long an answer may take, V(10s) if not given.
      - C(validate_certs) is whether the certificate has to be valid, which it has to if not given.
      - C(ca_path) is a file with the authorities that may have signed it.
      - C(client_cert) is a file with a certificate of our own, and C(client_key) one with its key, if that is not in the same.
      - C(driver=web) asks a web service for JSON. Judges that compare need a mapping with V(new) and V(stable) there.
      - C(url) (required) is its address, and C(method) is V(GET), as if not given, or V(POST).
      - C(body) is what is sent by V(POST), a text, or what becomes JSON.
      - C(path) is where in the answer the result is, as V(data.items[0].value). V($), which is all of it, if not given.
      - C(headers) is a mapping of names to values, sent with the question. They are not shown.
      - C(answer_within) is how long an answer may take, V(10s) if not given.
      - C(validate_certs), C(ca_path), C(client_cert) and C(client_key) are as of V(prometheus).
      - C(driver=command) runs a command, gives it the rollout as JSON, and takes what it prints, a number or JSON. It has to end with 0.
      - C(command) (required) is a list, the program and its arguments.
      - C(host) is the inventory host that it runs on, the controller if not given.
      - C(answer_within) is how long it may take, V(60s) if not given.
      - In C(query), C(errors), C(requests), C(url), C(body) and C(command), V({service}), V({revision}), V({stable}), V({previous}), V({step}),
        V({start}), V({elapsed}) and V({id}) are filled in. Write V({{) or V(}}) for a brace in C(url) and C(command), and it as it is in the others.
    type: dict
    default: {}
  approval:
    description:
      - How a person is waited for, wherever that is.
    type: dict
    default: {}
    suboptions:
      timeout:
        description: How long. V(1d) if not given, or V(unlimited).
        type: raw
      on_timeout:
        description: What then happens, V(rollback), V(hold) or V(promote). As O(on_failure) says if not given.
        type: str
        choices: [rollback, hold, promote]
      file:
        description: A file on the controller that says the same as the word V(promote), as of the gate driver C(approval).
        type: str
      url:
        description: A web service that says the same.
        type: str
  auto_promote:
    description:
      - Of O(strategy=blue_green). Whether the switch needs no person.
    type: bool
    default: true
  promote_delay:
    description:
      - Of O(strategy=blue_green) with O(auto_promote=true). How long the new set stands ready before the switch. A duration.
    type: raw
    default: 0
  hold:
    description:
      - Of O(strategy=blue_green). How long the old set stays ready after the switch, without requests. Going back is one switch meanwhile. A duration.
    type: raw
    default: 30s
  freeze:
    description:
      - Times in which a rollout must not move. What is on its way is finished, then it waits. The way back does not.
      - Each is a range, O(freeze[].from) and O(freeze[].to), or begins again and again, O(freeze[].cron) and O(freeze[].duration).
    type: list
    elements: dict
    default: []
    suboptions:
      from:
        description: A date, or a date and time (V(2026-12-24 16:00)).
        type: raw
      to:
        description: Another. A date is frozen as a whole.
        type: raw
      cron:
        description: Five fields, as cron takes them. Needs the Python package C(cronsim) on the controller.
        type: str
      duration:
        description: How long it lasts, one minute to 366 days.
        type: raw
      timezone:
        description: Name of the time zone.
        type: str
        default: UTC
      reason:
        description: Shown to who has to wait.
        type: str
  supersede:
    description:
      - Whether a rollout of another revision that is under way gives way to this one. A run that is at work on it is told to, and is waited for,
        O(progress_deadline) at most. Otherwise this one is refused.
    type: bool
    default: false
  kept:
    description:
      - What M(progressive.rollout.control) returned as RV(progressive.rollout.control#module:settings). Goes before all options but O(service) and
        O(store). Of the others only what is secret is taken, since the journal does not keep that.
    type: dict
  wait:
    description:
      - How long a run waits for a person or the end of a freeze before it leaves the rollout parked and ends well, with RV(ignore:parked).
        Run again, it goes on. A duration.
    type: raw
    default: 1h
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
