# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documentation of every step shares: the options that each of them takes."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  service:
    description: Name of the service. Lower-case letters, digits, V(-) and V(_), at most 63, beginning and ending with
      a letter or digit. It becomes part of file and server names.
    type: str
    required: true
  revision:
    description:
      - The revision to roll out. Letters, digits and V(.), V(_), V(+), V(-), at most 128, beginning with a letter or
        digit.
      - 'Quote it (V("2.10")): YAML would read V(2.10) as V(2.1), which is refused.'
      - Steps that do not begin a rollout, and restarts, take the revision in progress or the stable one if not given.
    type: str
  replicas:
    description:
      - Number of instances, at least 1. V(current) for as many as there are.
      - Or a mapping, for as many as there are within bounds. Where nothing is deployed that is C(min), and C(max) with
        a C(min) of 0.
      - If fewer are asked for than run, the others leave at the promotion.
    type: raw
    suboptions:
      min:
        description: The least number of instances. 0 to 10000.
        type: int
        default: 1
      max:
        description: The greatest number of instances. Not bounded if not given. 1 to 10000.
        type: int
  strategy:
    description: How the new revision replaces the old one.
    type: str
    choices:
      rolling: One stage with a sliding window, from all old to all new.
      canary: As O(steps) says, with gates between them.
      blue_green: A full new set without requests, then one switch. The old set stays for O(hold).
    default: rolling
  budget:
    description: How many instances may be beyond and below O(replicas) while a rollout runs. Percentages are of O(replicas).
    type: dict
    default: {max_surge: 25%, max_unavailable: 0}
    suboptions:
      max_surge:
        description: Instances beyond O(replicas), including those in progress. Rounds up. V(25%) if not given. A whole
          number or a percentage.
        type: raw
      max_unavailable:
        description: Instances of O(replicas) that may be missing. Rounds down. V(0) if not given. Not 0 together with
          a C(max_surge) of 0. Where both round to 0, one instance may be unavailable. A whole number or a percentage.
        type: raw
      max_in_flight:
        description: 'Replaces the other two: as many extra instances, none unavailable, and no more new instances than
          that in progress at a time. A whole number or a percentage.'
        type: raw
  platform:
    description:
      - 'Where instances run: C(driver) and its options. Required, but for M(progressive.rollout.plan) with its option
        C(fleet) and M(progressive.rollout.control).'
      - In texts, V({revision}), V({port}), V({service}), V({host}), V({address}), V({slot}) and V({instance}) are filled
        in. Write V({{) or V(}}) for a brace.
    type: dict
    suboptions:
      driver:
        description: Name of the driver. One of another collection is V(namespace.collection.driver).
        type: str
        required: true
      hosts:
        description:
          - 'I(process, systemd, podman, docker): Inventory pattern of the hosts that run instances. Required.'
          - 'I(static): Inventory pattern. There is an instance on each of the hosts, at each port. Required.'
          - 'I(swarm): Inventory pattern of the swarm''s managers; name several. Required.'
        type: str
      ports:
        description:
          - 'I(process, systemd, podman, docker): Ports that instances may listen on. All hosts together need enough for
            O(replicas) and the surge. A port, or a range (V(8100-8199)). Required.'
          - 'I(swarm): Ports that instances are published at, each once on a node. Swarm takes any free one if not given.
            A port, or a range (V(8100-8199)).'
        type: str
      env:
        description:
          - 'I(process, systemd, podman, docker): Environment variables. C(SERVICE), C(REVISION), C(INSTANCE), C(SLOT),
            C(ADDRESS) and C(PORT) are always set.'
          - 'I(swarm): Environment variables. C(SERVICE), C(REVISION), C(INSTANCE) and C(PORT) are always set. Whoever
            may use the Docker API can read them; give secrets as C(secrets).'
        type: dict
      path:
        description: 'I(process, systemd, podman, docker): Directory of records and logs on each host. An absolute path.'
        type: str
        default: /var/lib/rollout
      stop_timeout:
        description: 'I(process, systemd, podman, docker, swarm): How long after it was asked to stop an instance is killed.
          A duration.'
        type: raw
        default: 10s
      prepare_timeout:
        description: 'I(process, systemd, podman, docker): How long a host may take to get what a revision needs. A duration.'
        type: raw
        default: 10m
      zone:
        description: 'I(process, systemd, podman, docker): Name of a variable of the hosts (V(rack)). Instances are spread
          over its values first, and over hosts then.'
        type: str
      hooks:
        description: 'I(process, systemd, podman, docker): Commands on the instance''s host, with its environment. They
          may run twice, after a run that was killed.'
        type: dict
        default: {}
        suboptions:
          before_start:
            description: Command that runs before an instance is started. The instance fails if it does not exit with
              0.
            type: list
            elements: str
          after_stop:
            description: Command that runs when an instance is gone. Its errors are in the instance's log.
            type: list
            elements: str
          timeout:
            description: How long each of them may take. A duration, at most 30s.
            type: raw
            default: 10s
      command:
        description:
          - 'I(process): The program and its arguments. The program has to stay in the foreground. Required.'
          - 'I(systemd): The program and its arguments. Required without C(unit).'
          - 'I(podman, docker, swarm): Arguments that follow the image. Without it the image says what is run.'
        type: list
        elements: str
      cwd:
        description:
          - 'I(process): Working directory. An absolute path. V(/) if not given.'
          - 'I(systemd): Working directory, V(/) if not given. An absolute path.'
        type: str
      stop_signal:
        description:
          - 'I(process, podman, docker, swarm): Signal that asks an instance to stop. V(TERM) if not given.'
          - 'I(systemd): Signal that asks an instance to stop, V(TERM) if not given.'
        type: str
      unit:
        description: 'I(systemd): A template of your own (V(shop@.service)), which has to read C(EnvironmentFile=/var/lib/rollout/env/%n).
          Without it the rollout writes one, from the options that follow.'
        type: str
      user:
        description:
          - 'I(systemd): User that runs the program, V(root) if not given.'
          - 'I(podman, docker, swarm): User, as C(--user) takes it.'
        type: raw
      notify:
        description: 'I(systemd): Whether the program itself tells systemd when it is ready (C(Type=notify)).'
        type: bool
      image:
        description:
          - 'I(podman, docker): The image, V(registry.example.com/shop:{revision}) or V(registry.example.com/shop@sha256:{revision}).
            Before anything is touched it is pulled on every host, and has to be the same everywhere. Required.'
          - 'I(kubernetes): The image of a revision, V(registry.example.com/shop:{revision}). All else of a pod is as
            in the workload. Required.'
          - 'I(swarm): The image, V(registry.example.com/shop:{revision}). The tag is looked up once a generation, so
            that all nodes run the same image. Required.'
        type: str
      pull:
        description: 'I(podman, docker): When the image is pulled.'
        type: str
        choices: [missing, always, never]
        default: missing
      container_port:
        description: 'I(podman, docker): Port that the container listens on. It is published at the instance''s address
          and port, and C(ADDRESS) and C(PORT) are where to listen. Required, but not with C(network=host). 1 to 65535.'
        type: int
      network:
        description: 'I(podman, docker): The network, V(host) for the host''s own.'
        type: raw
      volumes:
        description:
          - 'I(podman, docker): Volumes, as C(--volume) takes them.'
          - 'I(swarm): Volumes, or directories of the node, each with a path in the container, and perhaps C(:ro).'
        type: list
        elements: str
      env_files:
        description: 'I(podman, docker): Files on the host, as C(--env-file) takes them.'
        type: list
        elements: str
      secrets:
        description:
          - 'I(podman): Secrets, as C(--secret) takes them.'
          - 'I(swarm): Secrets of Swarm by name, each perhaps with the path of its file; the usual one is /run/secrets/NAME.'
        type: list
        elements: str
      labels:
        description:
          - 'I(podman, docker): Labels, as C(--label) takes them.'
          - 'I(swarm): Labels of the services, beside those of the rollout.'
        type: dict
      memory:
        description: 'I(podman, docker, swarm): Limit of memory (V(512m)).'
        type: raw
      cpus:
        description: 'I(podman, docker, swarm): Limit of processors (V(1.5)).'
        type: raw
      pids:
        description: 'I(podman, docker): Limit of processes.'
        type: raw
      ulimits:
        description: 'I(podman, docker): Limits, as C(--ulimit) takes them.'
        type: dict
      runtime:
        description: 'I(podman, docker): Runtime, as C(--runtime) takes it.'
        type: raw
      healthcheck:
        description: 'I(podman, docker, swarm): A check by the program itself, or V(none) for not even the image''s. While
          it has not passed, the instance is not ready.'
        type: raw
        suboptions:
          command:
            description: A command for the image's shell.
            type: str
            required: true
          interval:
            description: How often it runs. A duration.
            type: raw
          timeout:
            description: How long it may take. A duration.
            type: raw
          start_period:
            description: How long after the start its failures do not count. A duration.
            type: raw
          retries:
            description: How many failures in a row make the container unhealthy. At least 1.
            type: int
      restart:
        description:
          - 'I(podman, docker): What the program does with a container that ended, V(no), V(on-failure), V(on-failure:3),
            V(unless-stopped) or V(always). V(no) if not given.'
          - 'I(swarm): When Swarm starts an instance again that ended. V(any) if not given.'
        type: str
      keep_revisions:
        description: 'I(podman, docker): Of how many revisions that no longer run each host keeps a stopped container,
          and its image with it. V(1) if not given, and V(0) with C(restart=always), which would start them again with
          the host.'
        type: int
      args:
        description: 'I(podman, docker): Further arguments of the program''s C(run).'
        type: list
        elements: str
      port:
        description:
          - 'I(static): The port that instances listen on, or a list of ports. 1 to 65535. Required.'
          - 'I(kubernetes): The port that checks and load balancers reach a pod at, the container''s first one if not
            given. 1 to 65535.'
          - 'I(swarm): Port that the container listens on. It is published on the node that Swarm places the instance
            on (C(mode=host)), at a free port, or one of C(ports). 1 to 65535. Required.'
        type: raw
      workload:
        description: 'I(kubernetes): The workload, V(deployment/shop), V(statefulset/db) or V(daemonset/agent). It has
          to exist, and stays what it is: only its pod template is changed, and the number of replicas of a Deployment.
          A StatefulSet and a DaemonSet need the update strategy V(OnDelete); their pods are replaced where they are,
          without a surge. Required.'
        type: str
      container:
        description: 'I(kubernetes): The container with that image. Required where a pod has several.'
        type: str
      namespace:
        description: 'I(kubernetes): The namespace, that of the context if not given.'
        type: str
      context:
        description: 'I(kubernetes): The context of the kubeconfig, the current one if not given. Without a kubeconfig,
          the service account of the pod that the playbook runs in is used.'
        type: str
      kubeconfig:
        description: 'I(kubernetes): The kubeconfig, that of the environment variable C(KUBECONFIG) if not given. An absolute
          path.'
        type: str
      clusters:
        description: 'I(kubernetes): Several clusters, with what differs in each. What is not given is as in the options
          beside this list. Platform and load balancers need the same ones, and may take the same list.'
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: The name of the cluster, for people and targets.
            type: str
            required: true
          namespace:
            description: The namespace, that of the context if not given.
            type: str
          context:
            description: The context of the kubeconfig, the current one if not given. Without a kubeconfig, the service
              account of the pod that the playbook runs in is used.
            type: str
          kubeconfig:
            description: The kubeconfig, that of the environment variable C(KUBECONFIG) if not given. An absolute path.
            type: str
          factor:
            description: 'How many times its even part of O(replicas) it has: O(replicas), divided by the number of clusters
              and rounded up, times this, and rounded up again. More than 0, at most 1000.'
            type: float
            default: 1
      socket:
        description: 'I(swarm): Path of the Docker socket on each of them, for a user that may use it (C(become)). An
          absolute path.'
        type: str
        default: /var/run/docker.sock
      configs:
        description: 'I(swarm): Configs of Swarm by name, each perhaps with the path of its file; the usual one is /NAME.'
        type: list
        elements: str
      constraints:
        description: 'I(swarm): Which nodes may run instances, as C(--constraint) takes them.'
        type: list
        elements: str
      networks:
        description: 'I(swarm): Networks of the swarm that instances are attached to.'
        type: list
        elements: str
      reserve:
        description: 'I(swarm): What a node must have left to get an instance.'
        type: dict
        default: {}
        suboptions:
          memory:
            description: Memory (V(256m)).
            type: raw
          cpus:
            description: Processors (V(0.5)).
            type: raw
      registry_auth:
        description: 'I(swarm): Whether nodes get the login of the managers'' user for the image''s registry, which C(docker
          login) has left there.'
        type: bool
        default: false
      parts:
        description: 'I(several): The parts, by name: each with C(driver), the options of that driver, and C(factor),
          how many times its even part of O(replicas) it has: O(replicas), divided by the number of parts and rounded
          up, times this (1 if not given), and rounded up again. A part is on hosts (I(process), I(systemd), I(podman),
          I(docker)), or a Deployment of I(kubernetes) in one cluster. Required.'
        type: dict
  traffic:
    description: 'What sends requests to the instances: C(driver) and its options.'
    type: dict
    default: {driver: none}
    suboptions:
      driver:
        description: Name of the driver. One of another collection is V(namespace.collection.driver).
        type: str
        default: none
      hosts:
        description:
          - 'I(haproxy): Inventory pattern of the load balancers'' hosts. Without it the sockets are reached from the
            controller.'
          - 'I(envoy): Inventory pattern of the Envoys'' hosts. Without it Envoy is on the controller.'
          - 'I(nginx): Inventory pattern of the hosts of nginx. Without it nginx is on the controller.'
        type: str
      socket:
        description: 'I(haproxy): Socket of the Runtime API with C(level admin), a path or V(host:port), or a list of
          them.'
        type: list
        elements: str
        default: [/run/haproxy/admin.sock]
      backend:
        description: 'I(haproxy): Name of the backend. Required.'
        type: str
      preview:
        description:
          - 'I(haproxy): Name of another backend, which contains only the new instances of a rollout, from when they are
            ready to its end.'
          - 'I(envoy): Another address and port, which lead only to the new instances of a rollout, from when they are
            ready to its end. An IP address and a port.'
        type: str
      drain_timeout:
        description: 'I(haproxy, envoy, nginx): How long requests in flight are waited for. The instance is stopped after
          that all the same. A duration.'
        type: raw
        default: 30s
      access_log:
        description: 'I(haproxy, envoy, nginx): Access log on the load balancers'' hosts, in the format that M(progressive.rollout.gate)
          reads. Analyses then judge the times of single requests. An absolute path.'
        type: str
      slots:
        description: 'I(haproxy): Prefix of the names of prepared servers. Without it servers are added and deleted as
          needed.'
        type: str
      ca_path:
        description:
          - 'I(haproxy): File with the CA certificates that those of instances are verified against (O(health.tls)), which
            HAProxy''s configuration names as well: it reads no files later. The system''s CA certificates if not given.
            An absolute path.'
          - 'I(envoy): File on the Envoys'' hosts with the CA certificates that those of instances are verified against
            (O(health.tls)). An absolute path.'
        type: str
      state_file:
        description: 'I(haproxy): File on the load balancer''s host that the state of the servers is saved to after each
          change, for C(load-server-state-from-file). It needs C(hosts), and one socket each.'
        type: str
      path:
        description:
          - 'I(haproxy): Directory, made where it is missing, for the locks and epochs that keep a late command of an
            older run from changing anything. It is on C(hosts), or on the controller without them. An absolute path.
            V(/var/lib/rollout) if not given.'
          - 'I(envoy): Directory that Envoy watches. The rollout''s user may write to it, and it belongs to the group
            that Envoy runs as. An absolute path. Required.'
          - 'I(nginx): Directory of the files that nginx includes. An absolute path. V(/etc/nginx/rollout) if not given.'
        type: str
      admin:
        description: 'I(envoy): Envoy''s admin interface as seen from its host. An address and a port.'
        type: str
        default: 127.0.0.1:9901
      listen:
        description: 'I(envoy): Address and port that clients of the service connect to. An IP address and a port. Required.'
        type: str
      match:
        description:
          - 'I(envoy): Requests that carry this header or cookie go only to the new instances, from when they are ready
            to the end of the rollout, whatever the share. All others are divided as without it. While no new instance
            is healthy, they go where the others go.'
          - 'I(gateway_api): Requests that carry this header go only to the new instances, from when they are ready to
            the end of the rollout, whatever the share. All others are divided as without it.'
        type: dict
      mirror:
        description: 'I(envoy): Percentage of the requests that is sent to the new instances as well, as long as these
          get no other traffic. The answers are thrown away. 1 to 100.'
        type: int
      sticky:
        description: 'I(envoy): Cookie that binds a client to its instance, as long as that is in rotation.'
        type: dict
        suboptions:
          cookie:
            description: Name of the cookie.
            type: str
            required: true
      retry:
        description: 'I(envoy): Number of other instances, one after the other, that a request is sent to when the first
          did not answer. Failed connections are retried for all requests, others only for C(GET) and C(HEAD). 0 to 10.'
        type: int
        default: 3
      upstream:
        description: 'I(nginx): Name of the service''s upstream in nginx''s configuration, and of its file. The service''s
          name if not given.'
        type: str
      config:
        description: 'I(nginx): Configuration file of nginx. An absolute path.'
        type: str
        default: /etc/nginx/nginx.conf
      pid:
        description: 'I(nginx): File with the pid of the master process. An absolute path.'
        type: str
        default: /run/nginx.pid
      status:
        description: 'I(nginx): Address and port that nothing else uses. nginx says there what it serves. An IP address
          and a port.'
        type: str
        default: 127.0.0.1:9180
      route:
        description: 'I(gateway_api): The route, V(httproute/shop) or V(grpcroute/shop). It has to exist, with rules that
          send requests to the Service. Required.'
        type: str
      service:
        description: 'I(gateway_api, kubernetes_service): The Service. It has to exist. Required.'
        type: str
      namespace:
        description: 'I(gateway_api, kubernetes_service): The namespace, that of the context if not given.'
        type: str
      context:
        description: 'I(gateway_api, kubernetes_service): The context of the kubeconfig, the current one if not given.
          Without a kubeconfig, the service account of the pod that the playbook runs in is used.'
        type: str
      kubeconfig:
        description: 'I(gateway_api, kubernetes_service): The kubeconfig, that of the environment variable C(KUBECONFIG)
          if not given. An absolute path.'
        type: str
      clusters:
        description: 'I(gateway_api, kubernetes_service): Several clusters, with what differs in each. What is not given
          is as in the options beside this list. Platform and load balancers need the same ones, and may take the same
          list.'
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: The name of the cluster, for people and targets.
            type: str
            required: true
          namespace:
            description: The namespace, that of the context if not given.
            type: str
          context:
            description: The context of the kubeconfig, the current one if not given. Without a kubeconfig, the service
              account of the pod that the playbook runs in is used.
            type: str
          kubeconfig:
            description: The kubeconfig, that of the environment variable C(KUBECONFIG) if not given. An absolute path.
            type: str
          factor:
            description: 'How many times its even part of O(replicas) it has: O(replicas), divided by the number of clusters
              and rounded up, times this, and rounded up again. More than 0, at most 1000.'
            type: float
            default: 1
      settle:
        description:
          - 'I(gateway_api): How long after every Gateway has accepted a change requests may still go where they went:
            until all its proxies have heard of it. A duration. V(5s) if not given.'
          - 'I(kubernetes_service): How long after a switch the old pods stay at least: until every node has heard of
            it. A duration. V(1s) if not given.'
        type: raw
  health:
    description:
      - How instances are asked whether they are ready. Give C(http) or C(tcp). Without either, running is ready.
      - The load balancers' own checks are set up from the same values.
    type: dict
    default: {}
    suboptions:
      driver:
        description: A check of another collection (V(acme.shop.grpc)), with its own options.
        type: str
      interval:
        description: Time between two questions. New instances are asked more often until they are ready. A duration.
        type: raw
        default: 500ms
      timeout:
        description: How long an answer may take. A duration.
        type: raw
        default: 2s
      rise:
        description: Passes in a row that make an instance ready. At least 1.
        type: int
        default: 2
      fall:
        description: Failures in a row that make it unhealthy. At least 1.
        type: int
        default: 3
      deadline:
        description: How long a new instance may take to become ready. As long as O(progress_deadline) if not given. A
          duration, at least 1s.
        type: raw
      port:
        description: Another port than the instance's own. 1 to 65535.
        type: int
      from:
        description: Where the questions come from.
        type: str
        choices:
          controller: The controller.
          host: The instance's own host, for services that only listen there.
        default: controller
      tls:
        description: Whether instances speak TLS there.
        type: bool
        default: false
      validate_certs:
        description: Whether their certificate has to be valid.
        type: bool
        default: true
      http:
        description: 'With C(http): The path of a GET request.'
        type: str
      status:
        description: 'With C(http): The status codes that pass. A status, a range, or a list of them.'
        type: raw
        default: 200-299
      body:
        description: 'With C(http): A text that the body of the answer has to contain.'
        type: str
      headers:
        description: 'With C(http): Headers of the request.'
        type: dict
        default: {}
      tcp:
        description: 'With C(tcp): Whether an accepted connection is enough.'
        type: bool
  min_ready:
    description:
      - How long an instance has to have been ready before it counts as available. A duration.
      - Durations are seconds (V(90)) or a number with V(ms), V(s), V(m), V(h) or V(d) (V(10m)).
    type: raw
    default: 0
  progress_deadline:
    description: How long a rollout may go without progress before it fails, counted from the last progress. A duration,
      at least 1s.
    type: raw
    default: 10m
  failure_limit:
    description:
      - Number of new instances that fail without progress in between and end the rollout.
      - Or a mapping, to bound the failures of the whole rollout as well.
    type: raw
    default: 3
    suboptions:
      in_a_row:
        description: As the number. At least 1.
        type: int
        default: 3
      total:
        description: New instances that may fail in the whole rollout. Rounds up. Not bounded if not given. A whole number
          or a percentage.
        type: raw
  on_failure:
    description: What a failed rollout does.
    type: str
    choices:
      rollback: Return to the revision before.
      hold: Stop as it is until a person decides.
      continue: Ignore failing instances until the progress deadline, then leave the fleet as it is.
    default: rollback
  watch_new:
    description: How long a new instance that became ready is watched. If it breaks before, others that have just become
      ready do not compensate for it, so that a revision that starts and crashes over and over is recognized. A duration.
    type: raw
    default: 2m
  on_stable_lost:
    description: What a canary or blue-green rollout does when no instance of the stable revision serves any more, and
      new ones are ready. As long as any serves, those that fail are replaced.
    type: str
    choices:
      repair: Start instances of the stable revision again.
      promote: Promote at once, without further pauses and gates.
      hold: Stop as it is until a person decides.
    default: repair
  headroom:
    description: How many times its usual requests an instance of the stable revision can take during a rollback. As soon
      as those in service can carry all requests that way, the new revision gets none. With V(0) it keeps its requests
      until the budget releases it. 1 or more, or V(0) for never more than usual.
    type: raw
    default: 1.25
  store:
    description: 'Where the journal and the lease are kept: C(driver) and its options.'
    type: dict
    default: {driver: file, path: /var/lib/rollout}
    suboptions:
      driver:
        description: Name of the driver. One of another collection is V(namespace.collection.driver).
        type: str
        default: file
      path:
        description: 'I(file): Directory of the journals and leases. An absolute path.'
        type: str
        default: /var/lib/rollout
      host:
        description: 'I(file): Inventory host that keeps them, the controller if not given. AWX needs one, since its controllers
          are thrown away.'
        type: str
      endpoints:
        description: 'I(etcd): URLs of the members. If one does not answer, the next one is asked. Required.'
        type: list
        elements: str
      prefix:
        description: 'I(etcd): What all keys begin with.'
        type: str
        default: /rollout
      user:
        description:
          - 'I(etcd): User of etcd, if it has authentication.'
          - 'I(postgresql): User of PostgreSQL. V(rollout) if not given.'
        type: str
      password:
        description:
          - 'I(etcd): The user''s password.'
          - 'I(postgresql): The user''s password. If not given, that of the environment variable C(PGPASSWORD) or of C(~/.pgpass).'
        type: str
      ca_path:
        description:
          - 'I(etcd): File on the controller with the authorities that may have signed the servers'' certificates.'
          - 'I(postgresql): File on the controller with the authorities that may have signed the server''s certificate,
            those of the system if not given.'
        type: str
      client_cert:
        description: 'I(etcd, postgresql): File on the controller with a client''s certificate.'
        type: str
      client_key:
        description: 'I(etcd, postgresql): File on the controller with the key of C(client_cert).'
        type: str
      servers:
        description: 'I(postgresql): The servers, each a name or an address with or without a port, or the directory of
          a socket. The first one that takes writes is used. Required.'
        type: list
        elements: raw
      database:
        description: 'I(postgresql): The database.'
        type: str
        default: rollout
      schema:
        description: 'I(postgresql): The schema of the table.'
        type: str
        default: public
      tls:
        description: 'I(postgresql): Whether connections have to be encrypted, to a server whose certificate is valid
          for its name.'
        type: bool
        default: true
      namespace:
        description: 'I(kubernetes): The namespace, that of the context if not given.'
        type: str
      context:
        description: 'I(kubernetes): The context of the kubeconfig, the current one if not given. Without a kubeconfig,
          the service account of the pod that the playbook runs in is used.'
        type: str
      kubeconfig:
        description: 'I(kubernetes): The kubeconfig, that of the environment variable C(KUBECONFIG) if not given. An absolute
          path.'
        type: str
  lease:
    description: How long the right to change the service outlives its last use. Another run waits at most that long for
      one that died. A duration, at least 5s, at most 1h.
    type: raw
    default: 60
  targets:
    description: The parts that the fleet is divided into, such as regions, in the order in which they are rolled out.
      O(strategy) is carried out in one after the other. A failure in any of them rolls all back. Each host, cluster or
      part of O(platform) is in exactly one.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the target, such as a region's.
        type: str
        required: true
      hosts:
        description: Its hosts of O(platform), a pattern of the inventory.
        type: str
      clusters:
        description: Its clusters, by their names in C(clusters) of O(platform), in place of C(hosts).
        type: list
        elements: str
        default: []
      parts:
        description: Its parts, by their names in C(parts) of O(platform), in place of C(hosts).
        type: list
        elements: str
        default: []
      factor:
        description: 'How many times its even part of O(replicas) it has: O(replicas), divided by the number of targets
          and rounded up, times this, and rounded up again. Of clusters, O(platform) has it. More than 0, at most 1000.'
        type: float
        default: 1
      load_balancers:
        description: The load balancers that send requests to this target alone, by the names that C(status) shows. All
          others send requests to all instances.
        type: list
        elements: str
        default: []
      gates:
        description: What has to let the rollout pass before the next target, as of M(progressive.rollout.gate).
        type: list
        elements: dict
      soak:
        description: How long the target serves with the new revision before its gates are asked. A duration.
        type: raw
        default: 0
  steps:
    description:
      - The steps of O(strategy=canary), a list. After the last one all instances are new. Each item has exactly one of
        C(set_weight), C(set_replicas), C(instance_weight), C(pause), C(gate) and C(analysis), and may have C(name), C(on_failure)
        and C(reversible).
      - 'Or a mapping with C(group_size), C(cycles), C(acceptance), C(wait), C(gates) and C(allowed_failures): as many
        groups of that size, one after the other, then all others.'
      - 'Or a mapping with C(ramp), C(start), C(factor) or C(increment), C(every), C(max), C(gates) and C(ahead): shares
        that rise by themselves.'
    type: raw
    default: []
    suboptions:
      set_weight:
        description: Percentage of requests that goes to new instances, each time more than before. There are as many
          new instances as that takes, or as C(set_replicas) said. 1 to 100.
        type: int
      set_replicas:
        description: Number of new instances. Percentages are of O(replicas). Without any C(set_weight) their number is
          their share. A whole number or a percentage.
        type: raw
      instance_weight:
        description: Percentage of instances that are new, with one more than O(replicas) meanwhile. Waits for a person
          after it, unless a C(pause) follows. 1 to 100.
        type: int
      pause:
        description: A duration, a mapping, or an empty mapping, which waits for a person.
        type: raw
        suboptions:
          duration:
            description: How long the rollout pauses. Without it, it waits for a person. A duration.
            type: raw
          timeout:
            description: How long a person is waited for. V(1d) if not given. A duration, or V(unlimited).
            type: raw
          on_timeout:
            description: What happens then. As O(on_failure) says if not given.
            type: str
            choices:
              rollback: Roll back.
              hold: Stop until a person decides.
              promote: Let the rollout pass.
      gate:
        description: A gate, as of M(progressive.rollout.gate).
        type: dict
      analysis:
        description: An analysis, as O(analysis), that ends after its C(count) of measurements.
        type: dict
      name:
        description: Name of the step.
        type: str
      on_failure:
        description: Replaces O(on_failure) in this step.
        type: str
        choices: [rollback, hold, continue]
      reversible:
        description: V(false) where there is no rollback from this step on, so that a failure holds.
        type: bool
        default: true
      group_size:
        description: Number of instances in a group. 1 to 10000.
        type: int
        default: 1
      cycles:
        description: Number of groups, before all others. 0 to 10000.
        type: int
        default: 3
      acceptance:
        description: What is waited for after each group.
        type: str
        choices: {none: Nothing., timed: C(wait)., checks: C(gates).}
        default: none
      wait:
        description: How long to wait with C(acceptance=timed). A duration.
        type: raw
        default: 0
      allowed_failures:
        description: Number of failing new instances that are tolerated.
        type: int
        default: 0
      gates:
        description: Gates with C(acceptance=checks), or after C(every) of each share of a C(ramp), as of M(progressive.rollout.gate).
        type: list
        elements: dict
      ramp:
        description: How the share of the requests rises from step to step.
        type: str
        choices:
          geometric: Each share is C(factor) times the one before.
          linear: Each share is C(increment) more than the one before.
        required: true
      start:
        description: The first percentage. V(10) with C(ramp=geometric), C(increment) with C(ramp=linear). 1 to 99.
        type: int
      factor:
        description: With C(ramp=geometric). V(2) if not given. 2 to 100.
        type: int
      increment:
        description: With C(ramp=linear). V(5) if not given. 1 to 99.
        type: int
      every:
        description: How long each share stays, from when the load balancers have it and its instances are ready. A duration.
        type: raw
        default: 0
      max:
        description: The last percentage. Below 100 the rollout stays there, until a person promotes it. 1 to 100.
        type: int
        default: 100
      ahead:
        description: Whether the new instances of the next step start while a share stays, as far as O(budget) has room
          for them. They do not raise the share.
        type: bool
        default: false
  gates:
    description: What has to let a rollout pass at which moment, with any O(strategy). Each moment has a list of gates,
      asked one after the other. M(progressive.rollout.gate) has the options of gates.
    type: dict
    default: {}
    suboptions:
      confirm_rollout:
        description: Gates before anything is started.
        type: list
        elements: dict
      confirm_traffic_increase:
        description: Gates before each increase of the new instances' share of requests.
        type: list
        elements: dict
      confirm_promotion:
        description: Gates before the new instances get all requests for good.
        type: list
        elements: dict
      post_rollout:
        description: Gates when they have all requests, before the new revision is the stable one.
        type: list
        elements: dict
      rollback:
        description: Gates that are asked throughout. One that passes rolls back, and any other answer has no effect.
        type: list
        elements: dict
  analysis:
    description: 'What is measured from a step on, and judged after each measurement. A metric that fails ends the rollout
      as O(on_failure) says. One that cannot be measured holds the fleet as it is and waits for a person. If not given,
      and there is no analysis in O(steps), O(gates) or O(targets) either, the load balancers'' requests to new and old
      instances are compared as long as both have some (not with O(strategy=blue_green)): a new revision that is worse
      is a failure, and nothing else has an effect. V({}) is no analysis.'
    type: dict
    suboptions:
      metrics:
        description: What is measured. If not given, errors and, where the load balancers measure or log it, latency.
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
            description: How it is judged. V(threshold) with a condition, V(new_messages) with C(driver=instance_log),
              else V(sequential) if not given.
            type: str
            choices:
              threshold: Checks conditions on each measurement.
              sequential: Compares new and stable instances after each measurement, and may decide at any of them.
              kayenta: Compares new and stable instances at the end, as Kayenta does.
              new_messages: Finds messages that only new instances log, of C(driver=instance_log).
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
            description: 'I(sequential): Probability of a false alarm of this metric, a part of the analysis'' C(alpha).
              An equal part if not given. Between 0 and 0.5.'
            type: float
          tolerance:
            description: 'I(sequential): How many times the errors, or the seconds, of the stable instances are tolerated.
              Between 0 and 1000.'
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
          at_least:
            description: 'I(sequential): Rate of errors of the new instances from which on they may be worse. Lower rates
              are not, whatever the rate of the stable instances is. 0 to 1.'
            type: float
            default: 0
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
            description: 'I(kayenta): How many times the interquartile range makes an outlier. Between 0 and 1000.'
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
          failure:
            description: 'I(new_messages): Which error messages of new instances only are a failure.'
            type: str
            choices:
              never: 'None: they are named in reasons, the timeline and the report.'
              any: One that came three times or in two measurements, and that no old instance logged in the two measurements
                that followed.
            default: never
          of:
            description:
              - 'I(load_balancer): What is compared, as the load balancers count it. V(errors) if not given.'
              - 'I(access_log): What is compared. V(latency) if not given.'
              - 'I(saturation): What is compared. V(all) if not given.'
            type: str
          warm_up:
            description:
              - 'I(load_balancer): How long after its first request the latency of a new instance is not compared. A duration.
                V(60s) if not given.'
              - 'I(access_log): How long after its first request the times of a new instance are not compared. A duration.
                V(60s) if not given.'
              - 'I(saturation): How old an instance has to be before what it uses is compared. Restarts and C(oom) count
                from the first measurement. A duration. V(60s) if not given.'
            type: raw
          statuses:
            description: 'I(access_log): Statuses that are errors: V(404), or V(5xx) for all from 500 to 599.'
            type: list
            elements: str
            default: [5xx]
          path:
            description:
              - 'I(access_log): What the path of a request begins with, to be counted. V(/) if not given.'
              - 'I(web): Path of the result in the answer (V(data.items[0].value)). V($) is all of it. V($) if not given.'
            type: str
          file:
            description: 'I(access_log): The access log on each of C(hosts). The C(access_log) of O(traffic) if not given.
              An absolute path.'
            type: str
          hosts:
            description: 'I(access_log): Inventory pattern of the hosts with the log. The C(hosts) of O(traffic) if not
              given.'
            type: str
          ignore:
            description: 'I(instance_log): Parts of messages that are not counted (V([connection reset by peer])), in
              any case of letters.'
            type: list
            elements: str
            default: []
          address:
            description: 'I(prometheus): URL of Prometheus (V(https://prometheus:9090)). Required.'
            type: str
          query:
            description: 'I(prometheus): Expression in PromQL, for the present value.'
            type: str
          range:
            description: 'I(prometheus): How far back the values of C(query) are compared, all at once, in place of its
              present value. Only for the judge V(kayenta), with C(count) V(1). A duration, at least 10s.'
            type: raw
          step:
            description: 'I(prometheus): Time between two values. A 60th of C(range) if not given. A duration, at least
              1s.'
            type: raw
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
          command:
            description: 'I(command): The program and its arguments. Required.'
            type: list
            elements: str
          host:
            description: 'I(command): Inventory host that the command runs on, the controller if not given.'
            type: str
      interval:
        description: How often each metric is measured. A duration.
        type: raw
        default: 10s
      alpha:
        description: Probability that a good revision fails, over all metrics, instances and measurements of the judge
          V(sequential). Between 0 and 0.5.
        type: float
        default: 0.02
      on_enough:
        description: What follows where a person was asked since there was too little data, and by now there is enough,
          and all is well.
        type: str
        choices: {pass: It passes by itself., ask: 'The person is told, and asked still.'}
        default: pass
      pass:
        description: Score of the judge V(kayenta) that passes. A lower one waits for a person. 0 to 100.
        type: float
        default: 95
      marginal:
        description: Score of the judge V(kayenta) below which the analysis fails. 0 to 100.
        type: float
        default: 75
      weights:
        description: Weights of the groups of metrics of the judge V(kayenta), in percent. Equal if not given.
        type: dict
      probe:
        description: Synthetic requests to the new instances in service, for times of little traffic. They are counted
          with those of clients. A mapping as O(health), with its C(http), and its C(interval) between two requests to
          an instance.
        type: dict
      dry_run:
        description: Whether the analysis is only measured, judged and reported. It never fails the rollout, and asks
          no person.
        type: bool
        default: false
      on_error:
        description: What happens if it cannot be asked.
        type: str
        choices: {fail: The gate fails., ignore: It lets the rollout pass.}
      starting_step:
        description: Number of the step in O(steps) from which on it measures. At least 1.
        type: int
        default: 1
      bake:
        description: How long it continues when the new instances have all requests, before the new revision is the stable
          one. There is no stable revision to compare with by then, so it takes a metric with a condition. A duration.
        type: raw
        default: 0
  approval:
    description: How a rollout waits for a person.
    type: dict
    default: {}
    suboptions:
      timeout:
        description: How long a person is waited for. V(1d) if not given. A duration, or V(unlimited).
        type: raw
      on_timeout:
        description: What happens then. As O(on_failure) says if not given.
        type: str
        choices:
          rollback: Roll back.
          hold: Stop until a person decides.
          promote: Let the rollout pass.
      file:
        description: File on the controller that approves like V(promote), as of the gate driver V(approval).
        type: str
      url:
        description: Web service that approves, likewise.
        type: str
  auto_promote:
    description: With O(strategy=blue_green), whether the switch needs no person.
    type: bool
    default: true
  promote_delay:
    description: With O(strategy=blue_green) and O(auto_promote=true), how long the new set is ready before the switch.
      A duration.
    type: raw
    default: 0
  hold:
    description: How long old instances stay ready after the promotion, without requests. Until then a rollback is one
      switch. V(30s) if not given with O(strategy=blue_green). With O(strategy=canary) none stay if not given, and all
      of them stay until then. A duration.
    type: raw
  hold_replicas:
    description: With O(strategy=canary) and O(hold), how many old instances stay. Percentages are of those before the
      rollout. V(100%) if not given. With fewer, a rollback starts the others. A whole number or a percentage.
    type: raw
  autoscaler:
    description: 'What scales the service outside of rollouts: C(driver) and its options. It is changed while a rollout
      lasts, and put back at its end. None if not given.'
    type: dict
    suboptions:
      driver:
        description: Name of the driver. One of another collection is V(namespace.collection.driver).
        type: str
        required: true
      mode:
        description: What happens to the autoscaler.
        type: str
        choices:
          hold: It changes no number while the rollout lasts.
          raise: Before the share of the requests rises, its minimum is raised to the instances that carry it, up to its
            maximum.
          follow: It changes no number itself, and the rollout goes on to the number it wants.
          none: It is left alone.
        default: hold
      limit:
        description: How long the autoscaler stays changed while the rollout waits for a person, a freeze or a pause.
          Then it is put back until the rollout goes on. It is put back at once where the run ends before the rollout
          does. A duration.
        type: raw
        default: 1h
      name:
        description:
          - 'I(hpa): Name of the HorizontalPodAutoscaler. Required.'
          - 'I(keda): Name of the ScaledObject. Required.'
        type: str
      namespace:
        description: 'I(hpa, keda): The namespace, that of the context if not given.'
        type: str
      context:
        description: 'I(hpa, keda): The context of the kubeconfig, the current one if not given. Without a kubeconfig,
          the service account of the pod that the playbook runs in is used.'
        type: str
      kubeconfig:
        description: 'I(hpa, keda): The kubeconfig, that of the environment variable C(KUBECONFIG) if not given. An absolute
          path.'
        type: str
      get:
        description: 'I(command): The command that prints the bounds as JSON. Required.'
        type: list
        elements: str
      set:
        description: 'I(command): The command that sets the bounds, with the placeholders V({min}) and V({max}). Required.'
        type: list
        elements: str
      host:
        description: 'I(command): Inventory host that the command runs on, the controller if not given.'
        type: str
      answer_within:
        description: 'I(command): How long each command may take. A duration.'
        type: raw
        default: 10s
  freeze:
    description:
      - Times in which a rollout does not move. What is in progress is finished, then the rollout waits. A rollback does
        not.
      - Each is a range, C(from) and C(to), or recurs, C(cron) and C(duration).
    type: list
    elements: dict
    default: []
    suboptions:
      from:
        description: A date, or a date and time (V(2026-12-24 16:00)).
        type: raw
      to:
        description: Another. A date counts as a whole.
        type: raw
      cron:
        description: Five fields, as cron takes them. Needs the Python package C(cronsim) on the controller.
        type: str
      duration:
        description: How long it lasts. A duration, at least 1m.
        type: raw
      timezone:
        description: Name of the time zone.
        type: str
        default: UTC
      reason:
        description: Reason, which is shown while the rollout waits.
        type: str
  window:
    description:
      - Times in which alone a rollout moves, a list as O(freeze). Where both are given, a freeze comes first. V(always)
        ends the limit for this run, which the timeline then shows.
      - A rollback moves at any time.
    type: raw
    suboptions:
      from:
        description: A date, or a date and time (V(2026-12-24 16:00)).
        type: raw
      to:
        description: Another. A date counts as a whole.
        type: raw
      cron:
        description: Five fields, as cron takes them. Needs the Python package C(cronsim) on the controller.
        type: str
      duration:
        description: How long it lasts. A duration, at least 1m.
        type: raw
      timezone:
        description: Name of the time zone.
        type: str
        default: UTC
      reason:
        description: Reason, which is shown while the rollout waits.
        type: str
  order:
    description: The place of the revision among all, such as the time of its commit (V(1732300000)). A revision with
      a lower number than the stable one, or than that of the rollout in progress, is refused. Rollbacks are not.
    type: int
  older:
    description: Whether an older revision by O(order) may be rolled out all the same.
    type: bool
    default: false
  supersede:
    description: Whether a rollout of another revision in progress gives way to this one. A run that is at work on it
      is told to, and is waited for, O(progress_deadline) at most. Otherwise this one is refused.
    type: bool
    default: false
  wait:
    description: How long a run waits for a person or the end of a freeze. After that it ends successfully with the rollout
      parked (RV(ignore:parked)). The next run continues it. A duration.
    type: raw
    default: 1h
  report:
    description: 'Where the report of the rollout is written on the controller, and kept up to date while it runs. An
      absolute path that ends with V(.html), V(.md) (Markdown) or V(.xml) (JUnit), or with V(/): then a directory, which
      has to exist, gets all of them and an index of the service''s rollouts, below the name of the service. None if not
      given.'
    type: str
  notify:
    description: 'Who is told of the rollout: each receiver with C(driver), its options, and C(on), what it is told of.
      It holds no rollout up. The journal does not keep it, so each run needs it.'
    type: list
    elements: dict
    default: []
    suboptions:
      driver:
        description: Name of the driver.
        type: str
        required: true
      'on':
        description: Of what the receiver is told.
        type: list
        elements: str
        required: true
      template:
        description: The message instead of the driver's own, a template of jinja2, of at most 10,000 characters. It gets
          C(event), C(service), C(revision), C(previous), C(reason), C(by), C(text) and others, see the guide. Mark it
          with C(!unsafe), so that Ansible does not fill it in.
        type: str
      retries:
        description: How often an attempt that failed is repeated, after 1 s, 2 s, 4 s, ..., at most 30 s. 0 to 10.
        type: int
        default: 4
      url:
        description:
          - 'I(webhook, slack, mattermost, teams): URL of the webhook. It is a secret. Required.'
          - 'I(grafana_annotation): URL of Grafana. Required.'
        type: str
      validate_certs:
        description: 'I(webhook, slack, mattermost, teams, email, grafana_annotation): Whether the certificate has to
          be valid.'
        type: bool
        default: true
      ca_path:
        description: 'I(webhook, slack, mattermost, teams, email, grafana_annotation): File on the controller with the
          authorities that may have signed the certificate.'
        type: str
      answer_within:
        description:
          - 'I(webhook, slack, mattermost, teams, email, grafana_annotation): How long an attempt may take. A duration.
            V(10s) if not given.'
          - 'I(command): How long the command may take. A duration. V(60s) if not given.'
        type: raw
      headers:
        description: 'I(webhook): Headers of the request.'
        type: dict
        default: {}
      secret:
        description: 'I(webhook): Key that signs the body. The header C(X-Rollout-Signature) has C(sha256=) and its HMAC.'
        type: str
      environment:
        description: 'I(webhook): Name of the environment in CDEvents.'
        type: str
        default: production
      host:
        description:
          - 'I(email): The SMTP server. Required.'
          - 'I(command): Inventory host that the command runs on, the controller if not given.'
        type: str
      port:
        description: 'I(email): Its port. V(587) with STARTTLS, V(465) with TLS, V(25) without either. 1 to 65535.'
        type: int
      security:
        description: 'I(email): How the connection is encrypted.'
        type: str
        choices:
          starttls: The connection is encrypted before anything is said.
          tls: It is encrypted from its beginning.
          none: It is not encrypted. No password is sent.
        default: starttls
      username:
        description: 'I(email): Name to log in with.'
        type: str
      password:
        description: 'I(email): Password to log in with.'
        type: str
      sender:
        description: 'I(email): Address that mail comes from. Required.'
        type: str
      to:
        description: 'I(email): Addresses that mail goes to. Required.'
        type: list
        elements: str
      token:
        description: 'I(grafana_annotation): Token of a service account that may write annotations. Required.'
        type: str
      dashboard_uid:
        description: 'I(grafana_annotation): The dashboard. An annotation of the organization without it.'
        type: str
      panel_id:
        description: 'I(grafana_annotation): The panel of the dashboard. All of them without it. At least 1.'
        type: int
      command:
        description: 'I(command): The program and its arguments. Required.'
        type: list
        elements: str
  metrics:
    description: Where the metrics of the service are kept up to date while its rollout runs, in OpenMetrics. Give C(textfile),
      C(pushgateway), or both.
    type: dict
    default: {}
    suboptions:
      textfile:
        description: File on the controller for the textfile collector of node_exporter. Each service needs a file of
          its own. An absolute path that ends with V(.prom).
        type: str
      pushgateway:
        description: URL of a Pushgateway. The group is C(job=rollout) with C(service).
        type: str
  kept:
    description: What M(progressive.rollout.control) returned as RV(progressive.rollout.control#module:settings). Replaces
      all options but O(service) and O(store). Of the others only secrets are used, since the journal does not keep them.
    type: dict
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
    description: Reports what it would do, and touches nothing.
    support: full
"""
