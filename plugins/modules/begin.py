# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/begin.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: begin
short_description: Begin a rollout, or continue one
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Checks every setting, that hosts and load balancers can be reached, and that the budget fits on the platform. Then takes the lease.
  - Opens a rollout of O(revision), or continues one that is in progress, held or parked. While a rollout of another revision is in
    progress, the new one is refused, unless O(supersede=true). Changes nothing if O(revision) already runs with O(replicas).
  - The steps that follow do the work. They end at once if no rollout is in progress.
  - If it finds a command to abort that no run has obeyed yet, it rolls back, and then fails with the reason.
  - The L(quick reference,https://github.com/progressive-rollout/progressive.rollout/blob/main/docs/reference/quick-reference.md) has everything on a page;
    L(troubleshooting,https://github.com/progressive-rollout/progressive.rollout/blob/main/docs/how-to/troubleshoot.md) goes by what you see.
options:
  restart:
    description: Replace the instances even if they already run this revision. O(revision) and O(replicas) default to
      what is running.
    type: bool
    default: false
  rebalance:
    description:
      - If O(revision) already runs, move instances from crowded hosts to emptier ones until the hosts differ by at most
        one instance (zones first, if the platform has them). Each is replaced by an instance of the same revision and
        settings, within O(budget).
      - Has no effect if instances are spread evenly, or in a rollout of another revision or a restart, which spread their
        instances anyway.
    type: bool
    default: false
  why:
    description: Reason, for readers of the journal. No secrets.
    type: str
  variables:
    description: Names of the variables that are defined. A name that begins with C(rollout_) and that no step takes is
      refused as misspelled. The roles pass all of them.
    type: list
    elements: str
  unprepared:
    description: Hosts on which the tasks that prepare them have not run, so that nothing is begun. The roles pass them
      where V(rollout_prepare_tasks) is given.
    type: list
    elements: str
  hosts:
    description: The hosts that may be worked on, which are the hosts of the play. Only for a service that is deployed
      in place (C(driver=static) of O(platform)).
    type: list
    elements: str
  reached:
    description: By host, the result of a task that reached it or failed to (C(unreachable) and C(msg)), for example of
      M(ansible.builtin.raw). Hosts that were not reached are left as they are, and count as failed.
    type: dict
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
      - If it is not given, restarts and steps that do not begin a rollout use the revision in progress or the stable
        one.
    type: str
  replicas:
    description:
      - Number of instances, at least 1. V(current) for as many as there are. V(per_host) for exactly one on each host
        of O(platform), as agents and proxies need (drivers docker, podman, process and systemd).
      - Or a mapping, for as many as there are within bounds. If nothing is deployed, that is C(min), or C(max) with a
        C(min) of 0.
      - If fewer are requested than are running, the others leave at the promotion.
    type: raw
    suboptions:
      min:
        description: The lowest number of instances. 0 to 10000.
        type: int
        default: 1
      max:
        description: The highest number of instances. Unbounded if not given. 1 to 10000.
        type: int
  strategy:
    description: How the new revision replaces the old one.
    type: str
    choices:
      rolling: One stage with a sliding window, from all old to all new.
      canary: Follows O(steps), with gates between them.
      blue_green: A full new set without requests, then one switch. The old set stays for O(hold).
    default: rolling
  budget:
    description: How many instances above and below O(replicas) a rollout may have while it runs. Percentages are of O(replicas).
    type: dict
    default: {max_surge: 25%, max_unavailable: 0}
    suboptions:
      max_surge:
        description: Instances beyond O(replicas), including those in progress. Rounds up. V(25%) if not given. A whole
          number or a percentage.
        type: raw
      max_unavailable:
        description: How many of O(replicas) instances may be missing. Rounds down. V(0) if not given. Must not be 0 if
          C(max_surge) is 0. If both round to 0, one instance may be unavailable. A whole number or a percentage.
        type: raw
      max_in_flight:
        description: 'Replaces the other two: that many extra instances, none unavailable, and at most that many new instances
          in progress at a time. A whole number or a percentage.'
        type: raw
      max_unavailable_per_zone:
        description: How many instances may be missing in a zone (C(zone) of O(platform)) of those that an even spread
          gives it. No more are taken out there, even if the rest of the budget allows it. Not limited if not given. 1
          to 10000.
        type: int
  platform:
    description:
      - 'Where instances run: C(driver) and its options. Required, except for M(progressive.rollout.control), and for
        M(progressive.rollout.plan) with its option C(fleet).'
      - In strings, V({revision}), V({port}), V({service}), V({host}), V({address}), V({slot}) and V({instance}) are replaced
        by their values. Write V({{) or V(}}) for a literal brace.
    type: dict
    suboptions:
      driver:
        description: Name of the driver. One from another collection is V(namespace.collection.driver).
        type: str
        required: true
      hosts:
        description:
          - 'I(docker, podman, process, systemd): Inventory pattern of the hosts that run instances. Required.'
          - 'I(static): Inventory pattern of the hosts. Each has an instance on each port. Required.'
          - 'I(swarm): Inventory pattern of the swarm''s managers; name several. Required.'
        type: str
      ports:
        description:
          - 'I(docker, podman, process, systemd): Ports that instances may listen on. All hosts together need enough for
            O(replicas) and the surge. A port that another program or another service uses is passed over. A port, or
            a range (V(8100-8199)). Required.'
          - 'I(swarm): Ports that instances are published on, each once per node. If not given, Swarm picks any free port.
            A port, or a range (V(8100-8199)).'
        type: str
      env:
        description:
          - 'I(docker, podman, process, systemd): Environment variables. C(SERVICE), C(REVISION), C(INSTANCE), C(SLOT),
            C(ADDRESS) and C(PORT) are always set.'
          - 'I(swarm): Environment variables. C(SERVICE), C(REVISION), C(INSTANCE) and C(PORT) are always set. Anyone
            with access to the Docker API can read them; pass secrets in C(secrets).'
        type: dict
      path:
        description: 'I(docker, podman, process, systemd): Directory for records and logs on each host. An absolute path.'
        type: str
        default: /var/lib/rollout
      stop_timeout:
        description: 'I(docker, podman, process, swarm, systemd): How long an instance has to stop before it is killed.
          A duration.'
        type: raw
        default: 10s
      prepare_timeout:
        description: 'I(docker, podman, process, systemd): How long a host may take to get what a revision needs. A duration.'
        type: raw
        default: 10m
      zone:
        description: 'I(docker, podman, process, systemd): Name of a host variable (V(rack)). Instances are spread over
          its values first, then over hosts.'
        type: str
      hooks:
        description: 'I(docker, podman, process, systemd): Commands on the instance''s host, with the instance''s environment.
          They may run a second time if a run was killed.'
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
            description: How long each command may take. A duration, at most 30s.
            type: raw
            default: 10s
      image:
        description:
          - 'I(docker, podman): The image, V(registry.example.com/shop:{revision}) or V(registry.example.com/shop@sha256:{revision}).
            It is pulled on every host before anything is touched, and must be the same everywhere. Required.'
          - 'I(kubernetes): The image of a revision, V(registry.example.com/shop:{revision}). Everything else in a pod
            is as in the workload, or as C(template) says. Required.'
          - 'I(swarm): The image, V(registry.example.com/shop:{revision}). The tag is resolved once per generation, so
            that all nodes run the same image. Required.'
        type: str
      pull:
        description: 'I(docker, podman): When the image is pulled.'
        type: str
        choices: [missing, always, never]
        default: missing
      command:
        description:
          - 'I(docker, podman, swarm): Arguments after the image name. Without it, the image determines what runs.'
          - 'I(process): The program and its arguments. The program must stay in the foreground. Required.'
          - 'I(systemd): The program and its arguments. Required without C(unit).'
        type: list
        elements: str
      container_port:
        description: 'I(docker, podman): Port that the container listens on. It is published at the instance''s address
          and port, and C(ADDRESS) and C(PORT) tell the program where to listen. Required unless C(network=host). 1 to
          65535.'
        type: int
      network:
        description: 'I(docker, podman): The network, V(host) for the host''s own.'
        type: raw
      volumes:
        description:
          - 'I(docker, podman): Volumes, as C(--volume) takes them.'
          - 'I(swarm): Volumes, or directories on the node, each with a path in the container, and optionally C(:ro).'
        type: list
        elements: str
      env_files:
        description: 'I(docker, podman): Files on the host, as C(--env-file) takes them.'
        type: list
        elements: str
      labels:
        description:
          - 'I(docker, podman): Labels, as C(--label) takes them.'
          - 'I(swarm): Labels for the services, in addition to those of the rollout.'
        type: dict
      memory:
        description: 'I(docker, podman, swarm): Memory limit (V(512m)).'
        type: raw
      cpus:
        description: 'I(docker, podman, swarm): CPU limit (V(1.5)).'
        type: raw
      pids:
        description: 'I(docker, podman): Limit on the number of processes.'
        type: raw
      ulimits:
        description: 'I(docker, podman): Limits, as C(--ulimit) takes them.'
        type: dict
      user:
        description:
          - 'I(docker, podman, swarm): User, as C(--user) takes it.'
          - 'I(systemd): User that runs the program, V(root) if not given.'
        type: raw
      runtime:
        description: 'I(docker, podman): Runtime, as C(--runtime) takes it.'
        type: raw
      healthcheck:
        description: 'I(docker, podman, swarm): A check that the container engine itself runs, or V(none) to disable even
          the image''s own. The instance is not ready until it has passed.'
        type: raw
        suboptions:
          command:
            description: A command, run by the image's shell.
            type: str
            required: true
          interval:
            description: How often it runs. A duration.
            type: raw
          timeout:
            description: How long it may take. A duration.
            type: raw
          start_period:
            description: How long after the start failures do not count. A duration.
            type: raw
          retries:
            description: How many failures in a row make the container unhealthy. At least 1.
            type: int
      restart:
        description:
          - 'I(docker, podman): What the container engine does with a container that has ended, V(no), V(on-failure),
            V(on-failure:3), V(unless-stopped) or V(always). V(no) if not given.'
          - 'I(swarm): When Swarm restarts an instance that has ended. V(any) if not given.'
        type: str
      stop_signal:
        description:
          - 'I(docker, podman, process, swarm): Signal that asks an instance to stop. V(TERM) if not given.'
          - 'I(systemd): Signal that asks an instance to stop, V(TERM) if not given.'
        type: str
      keep_revisions:
        description: 'I(docker, podman): For how many revisions that no longer run each host keeps a stopped container,
          and with it the image. V(1) if not given, or V(0) with C(restart=always), which would start them again when
          the host boots.'
        type: int
      args:
        description: 'I(docker, podman): Additional arguments for the container engine''s C(run).'
        type: list
        elements: str
      workload:
        description: 'I(kubernetes): The workload, V(deployment/shop), V(statefulset/db) or V(daemonset/agent). It must
          exist, and stays as it is: only its pod template changes, and for a Deployment the number of replicas. A StatefulSet
          or DaemonSet needs the update strategy V(OnDelete); its pods are replaced in place, without a surge. Required.'
        type: str
      template:
        description: 'I(kubernetes): What else changes in the pod template, as a strategic merge patch of it: C(metadata)
          and C(spec), with containers, variables and volumes merged by their names. V({revision}) is filled in. The Deployment
          keeps the changes, and a rollback to an earlier revision takes its pod template from the Deployment''s history.'
        type: dict
        default: {}
      container:
        description: 'I(kubernetes): The container with that image. Required if a pod has several.'
        type: str
      port:
        description:
          - 'I(kubernetes): The port on which checks and load balancers reach a pod, the container''s first one if not
            given. 1 to 65535.'
          - 'I(static): The port that instances listen on, or a list of ports. 1 to 65535. Required.'
          - 'I(swarm): Port that the container listens on. It is published on the node where Swarm places the instance
            (C(mode=host)), on a free port or one of C(ports). 1 to 65535. Required.'
        type: raw
      namespace:
        description: 'I(kubernetes): The namespace, by default that of the context.'
        type: str
      context:
        description: 'I(kubernetes): The kubeconfig context, by default the current one. Without a kubeconfig, the service
          account of the pod that the playbook runs in is used.'
        type: str
      kubeconfig:
        description: 'I(kubernetes): The kubeconfig file, by default the one in the environment variable C(KUBECONFIG).
          An absolute path.'
        type: str
      clusters:
        description: 'I(kubernetes): Several clusters, each with what differs there. What is not given is taken from the
          options next to this list. Platform and load balancers need the same clusters, and can share the same list.'
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: The name of the cluster, in messages and for targets.
            type: str
            required: true
          namespace:
            description: The namespace, by default that of the context.
            type: str
          context:
            description: The kubeconfig context, by default the current one. Without a kubeconfig, the service account
              of the pod that the playbook runs in is used.
            type: str
          kubeconfig:
            description: The kubeconfig file, by default the one in the environment variable C(KUBECONFIG). An absolute
              path.
            type: str
          factor:
            description: 'Multiplier for its even share of O(replicas): O(replicas) divided by the number of clusters
              and rounded up, times this factor, rounded up again. More than 0, at most 1000.'
            type: float
            default: 1
      secrets:
        description:
          - 'I(podman): Secrets, as C(--secret) takes them.'
          - 'I(swarm): Swarm secrets by name, each optionally with the path of its file; the default is /run/secrets/NAME.'
        type: list
        elements: str
      cwd:
        description:
          - 'I(process): Working directory. An absolute path. V(/) if not given.'
          - 'I(systemd): Working directory, V(/) if not given. An absolute path.'
        type: str
      parts:
        description: 'I(several): The parts, by name, each with C(driver), that driver''s options, and C(factor), a multiplier
          for its even share of O(replicas): O(replicas) divided by the number of parts and rounded up, times this factor
          (1 if not given), rounded up again. A part is either on hosts (C(process), C(systemd), C(podman), C(docker)),
          or a Deployment of C(kubernetes) in one cluster. Required.'
        type: dict
      socket:
        description: 'I(swarm): Path of the Docker socket on each manager, for a user with access to it (C(become)); V({host})
          is the manager''s name in the inventory. An absolute path.'
        type: str
        default: /var/run/docker.sock
      configs:
        description: 'I(swarm): Swarm configs by name, each optionally with the path of its file; the default is /NAME.'
        type: list
        elements: str
      constraints:
        description: 'I(swarm): Which nodes may run instances, as C(--constraint) takes them.'
        type: list
        elements: str
      networks:
        description: 'I(swarm): Swarm networks that instances are attached to.'
        type: list
        elements: str
      reserve:
        description: 'I(swarm): What a node must have free to get an instance.'
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
        description: 'I(swarm): Whether nodes get the credentials for the image''s registry that C(docker login) has stored
          for the managers'' user.'
        type: bool
        default: false
      unit:
        description: 'I(systemd): Template unit of your own (V(shop@.service)), which must contain C(EnvironmentFile=/var/lib/rollout/env/%n).
          Without it, the rollout writes one from the options that follow.'
        type: str
      notify:
        description: 'I(systemd): Whether the program itself tells systemd when it is ready (C(Type=notify)).'
        type: bool
  traffic:
    description: 'What sends requests to the instances: C(driver) and its options.'
    type: dict
    default: {driver: none}
    suboptions:
      driver:
        description: Name of the driver. One from another collection is V(namespace.collection.driver).
        type: str
        default: none
      hosts:
        description:
          - 'I(envoy): Inventory pattern of the Envoy hosts. Without it, Envoy is on the controller.'
          - 'I(haproxy): Inventory pattern of the load balancer hosts. Without it, the sockets are reached from the controller.'
          - 'I(nginx): Inventory pattern of the nginx hosts. Without it, nginx is on the controller.'
        type: str
      path:
        description:
          - 'I(envoy): Directory that Envoy watches. The rollout''s user must be able to write to it, and it must belong
            to the group that Envoy runs as. An absolute path. Required.'
          - 'I(haproxy): Directory, created if missing, for the locks and epochs that keep a late command from an older
            run from changing anything. It is on C(hosts), or on the controller without C(hosts). It keeps two small files
            for each service and socket; those of a socket that is no longer used may be removed while no rollout of the
            service is running. An absolute path. V(/var/lib/rollout) if not given.'
          - 'I(nginx): Directory for the files that nginx includes. An absolute path. V(/etc/nginx/rollout) if not given.'
        type: str
      admin:
        description: 'I(envoy): Envoy''s admin interface as seen from its host. An address and a port.'
        type: str
        default: 127.0.0.1:9901
      listen:
        description: 'I(envoy): Address and port that clients of the service connect to. An IP address and a port. Required.'
        type: str
      preview:
        description:
          - 'I(envoy): Another address and port that lead only to the new instances of a rollout, from the time they are
            ready until the rollout ends. An IP address and a port.'
          - 'I(haproxy): Name of another backend that contains only the new instances of a rollout, from the time they
            are ready until the rollout ends.'
        type: str
      match:
        description:
          - 'I(envoy): Requests that carry this header or cookie go only to the new instances, from the time they are
            ready until the rollout ends, whatever the share. All other requests are divided as they would be without
            it. While no new instance is healthy, matching requests go where the others go. One condition, or a list of
            them of which one has to hold.'
          - 'I(gateway_api): Requests that carry this header go only to the new instances, from the time they are ready
            until the rollout ends, whatever the share. All other requests are divided as they would be without it. One
            condition, or a list of them of which one has to hold.'
        type: raw
      mirror:
        description:
          - 'I(envoy): Percentage of requests that are also sent to the new instances, as long as these get no other traffic.
            The answers are discarded. 1 to 100.'
          - 'I(gateway_api): Percentage of requests that are also sent to the new instances, as long as these get no other
            traffic, by the filter C(RequestMirror) of the route. The answers are discarded. Less than 100 needs Gateway
            API 1.3 and a Gateway that supports it. 1 to 100.'
        type: int
      sticky:
        description: 'I(envoy): Cookie that binds a client to its instance, as long as the instance is in rotation.'
        type: dict
        suboptions:
          cookie:
            description: Name of the cookie.
            type: str
            required: true
      retry:
        description: 'I(envoy): Number of other instances that a request is sent to, one after the other, if the first
          did not answer. Failed connections are retried for all requests, other failures only for C(GET) and C(HEAD).
          0 to 10.'
        type: int
        default: 3
      ca_path:
        description:
          - 'I(envoy): File on the Envoy hosts with the CA certificates that the instances'' certificates are verified
            against (O(health.tls)). An absolute path.'
          - 'I(haproxy): File with the CA certificates that the instances'' certificates are verified against (O(health.tls)).
            HAProxy''s configuration must name it as well, since HAProxy reads no files later. The system''s CA certificates
            if not given. An absolute path.'
        type: str
      cohort:
        description:
          - 'I(envoy, nginx): Clients stay on their side: a hash of this cookie or header decides whether the new or the
            old instances get a request. Requests without it are divided at random.'
          - 'I(haproxy): Clients stay on their side: a hash of what identifies a client decides whether the new or the
            old instances get its requests. HAProxy''s configuration says what identifies a client, as in the guide to
            HAProxy.'
        type: dict
      drain_timeout:
        description: 'I(envoy, haproxy, nginx): How long to wait for requests in flight. After that, the instance is stopped
          anyway. A duration.'
        type: raw
        default: 30s
      access_log:
        description: 'I(envoy, haproxy, nginx): Access log on the load balancer hosts, in the format that M(progressive.rollout.gate)
          reads. Analyses then judge the times of individual requests. An absolute path.'
        type: str
      route:
        description: 'I(gateway_api): The route, V(httproute/shop) or V(grpcroute/shop). It must exist, with rules that
          send requests to the Service. Required.'
        type: str
      service:
        description: 'I(gateway_api, kubernetes_service): The Service. It must exist. Required.'
        type: str
      namespace:
        description: 'I(gateway_api, kubernetes_service): The namespace, by default that of the context.'
        type: str
      context:
        description: 'I(gateway_api, kubernetes_service): The kubeconfig context, by default the current one. Without
          a kubeconfig, the service account of the pod that the playbook runs in is used.'
        type: str
      kubeconfig:
        description: 'I(gateway_api, kubernetes_service): The kubeconfig file, by default the one in the environment variable
          C(KUBECONFIG). An absolute path.'
        type: str
      clusters:
        description: 'I(gateway_api, kubernetes_service): Several clusters, each with what differs there. What is not
          given is taken from the options next to this list. Platform and load balancers need the same clusters, and can
          share the same list.'
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: The name of the cluster, in messages and for targets.
            type: str
            required: true
          namespace:
            description: The namespace, by default that of the context.
            type: str
          context:
            description: The kubeconfig context, by default the current one. Without a kubeconfig, the service account
              of the pod that the playbook runs in is used.
            type: str
          kubeconfig:
            description: The kubeconfig file, by default the one in the environment variable C(KUBECONFIG). An absolute
              path.
            type: str
          factor:
            description: 'Multiplier for its even share of O(replicas): O(replicas) divided by the number of clusters
              and rounded up, times this factor, rounded up again. More than 0, at most 1000.'
            type: float
            default: 1
      settle:
        description:
          - 'I(gateway_api): How long requests may still go where they went before, once every Gateway has accepted a
            change: until the change has reached all its proxies. A duration. V(5s) if not given.'
          - 'I(kubernetes_service): How long the old pods stay at least after a switch: until the switch has reached every
            node. A duration. V(1s) if not given.'
        type: raw
      socket:
        description: 'I(haproxy): Socket of the Runtime API with C(level admin), a path or V(host:port), or a list of
          them. V({host}) is the load balancer''s name in the inventory.'
        type: list
        elements: str
        default: [/run/haproxy/admin.sock]
      backend:
        description: 'I(haproxy): Name of the backend. Required.'
        type: str
      slots:
        description: 'I(haproxy): Name prefix of prepared servers. Without it, servers are added and deleted as needed.'
        type: str
      state_file:
        description: 'I(haproxy): File on the load balancer host to which the server state is saved after each change,
          for C(load-server-state-from-file). It needs C(hosts), and one socket on each. V({host}) is the load balancer''s
          name in the inventory.'
        type: str
      port:
        description: 'I(kubernetes_service): Name or number of that port of the Service at which the platform knows its
          pods, by default its first one. Requests to all of its ports are switched.'
        type: str
      upstream:
        description: 'I(nginx): Name of the service''s upstream in nginx''s configuration, and of its file. The service''s
          name if not given.'
        type: str
      config:
        description: 'I(nginx): nginx''s configuration file. An absolute path.'
        type: str
        default: /etc/nginx/nginx.conf
      pid:
        description: 'I(nginx): File with the pid of the master process. An absolute path.'
        type: str
        default: /run/nginx.pid
      status:
        description: 'I(nginx): Address and port that nothing else uses. nginx reports there what it serves. An IP address
          and a port.'
        type: str
        default: 127.0.0.1:9180
  health:
    description:
      - How instances are checked for readiness. Give C(http) or C(tcp). Without either, an instance is ready once it
        is running.
      - The load balancers' own checks are set up from the same values.
    type: dict
    default: {}
    suboptions:
      driver:
        description: A check from another collection (V(acme.shop.grpc)), with its own options.
        type: str
      interval:
        description: Time between two checks. New instances are checked more often until they are ready. A duration.
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
        description: A port other than the instance's own. 1 to 65535.
        type: int
      from:
        description: Where the checks are sent from.
        type: str
        choices:
          controller: The controller.
          host: The instance's own host, for services that only listen there.
        default: controller
      tls:
        description: Whether instances use TLS on that port.
        type: bool
        default: false
      validate_certs:
        description: Whether their certificate must be valid.
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
        description: 'With C(http): Text that the body of the answer must contain.'
        type: str
      headers:
        description: 'With C(http): Request headers.'
        type: dict
        default: {}
      tcp:
        description: 'With C(tcp): Whether an accepted connection is enough.'
        type: bool
  min_ready:
    description:
      - How long an instance must have been ready before it counts as available. A duration.
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
      - Number of new instances whose failure, without progress in between, ends the rollout.
      - Or a mapping, to also bound the failures of the whole rollout.
    type: raw
    default: 3
    suboptions:
      in_a_row:
        description: The same as a plain number. At least 1.
        type: int
        default: 3
      total:
        description: New instances that may fail in the whole rollout. Rounds up. Unbounded if not given. A whole number
          or a percentage.
        type: raw
  on_failure:
    description: What a failed rollout does.
    type: str
    choices:
      rollback: Return to the previous revision.
      hold: Stop where it is until an operator decides.
      continue: Ignore failing instances until the progress deadline, then leave the fleet as it is.
    default: rollback
  watch_new:
    description: How long a new instance is watched after it became ready. If it fails during that time, others that have
      just become ready do not compensate for it, so that a revision that keeps starting and crashing is recognized. A
      duration.
    type: raw
    default: 2m
  on_stable_lost:
    description: What a canary or blue-green rollout does when no instance of the stable revision is in service any more
      and new ones are ready. As long as one is in service, those that fail are replaced.
    type: str
    choices:
      repair: Start instances of the stable revision again.
      promote: Promote at once, without further pauses or gates.
      hold: Stop where it is until an operator decides.
    default: repair
  headroom:
    description: How many times its usual requests an instance of the stable revision can take during a rollback. As soon
      as the stable instances in service can carry all requests on that basis, the new revision gets none. With V(0),
      the new revision keeps its requests until the budget releases it. 1 or more, or V(0) for never more than usual.
    type: raw
    default: 1.25
  store:
    description: 'Where the journal and the lease are kept: C(driver) and its options.'
    type: dict
    default: {driver: file, path: /var/lib/rollout}
    suboptions:
      driver:
        description: Name of the driver. One from another collection is V(namespace.collection.driver).
        type: str
        default: file
      endpoints:
        description: 'I(etcd): URLs of the members. If one does not answer, the next one is asked. Required.'
        type: list
        elements: str
      prefix:
        description: 'I(etcd): Prefix of all keys.'
        type: str
        default: /rollout
      user:
        description:
          - 'I(etcd): etcd user, if authentication is enabled.'
          - 'I(postgresql): PostgreSQL user. V(rollout) if not given.'
        type: str
      password:
        description:
          - 'I(etcd): The user''s password.'
          - 'I(postgresql): The user''s password. If not given, the one in the environment variable C(PGPASSWORD) or in
            C(~/.pgpass).'
        type: str
      ca_path:
        description:
          - 'I(etcd): File on the controller with the CA certificates that the servers'' certificates are verified against.'
          - 'I(postgresql): File on the controller with the CA certificates that the server''s certificate is verified
            against, those of the system if not given.'
        type: str
      client_cert:
        description: 'I(etcd, postgresql): File on the controller with a client certificate.'
        type: str
      client_key:
        description: 'I(etcd, postgresql): File on the controller with the key of C(client_cert).'
        type: str
      path:
        description: 'I(file): Directory for the journals and leases. An absolute path.'
        type: str
        default: /var/lib/rollout
      host:
        description: 'I(file): Inventory host that keeps them, the controller if not given. AWX needs one, since its controllers
          are ephemeral.'
        type: str
      namespace:
        description: 'I(kubernetes): The namespace, by default that of the context.'
        type: str
      context:
        description: 'I(kubernetes): The kubeconfig context, by default the current one. Without a kubeconfig, the service
          account of the pod that the playbook runs in is used.'
        type: str
      kubeconfig:
        description: 'I(kubernetes): The kubeconfig file, by default the one in the environment variable C(KUBECONFIG).
          An absolute path.'
        type: str
      servers:
        description: 'I(postgresql): The servers, each a name or an address with or without a port, or the directory of
          a socket. The first one that accepts writes is used. Required.'
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
        description: 'I(postgresql): Whether connections must be encrypted, and the server''s certificate valid for its
          name.'
        type: bool
        default: true
  lease:
    description: How long the right to change the service outlives its last use. Another run waits at most that long for
      a run that died. A duration, at least 5s, at most 1h.
    type: raw
    default: 60
  targets:
    description: The parts that the fleet is divided into, such as regions, in the order in which they are rolled out.
      O(strategy) is carried out in one target after the other. A failure in any of them rolls all of them back. Each
      host, cluster or part of O(platform) is in exactly one.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the target, such as that of a region.
        type: str
        required: true
      hosts:
        description: Its hosts among those of O(platform), an inventory pattern.
        type: str
      clusters:
        description: Its clusters, by their names in C(clusters) of O(platform), instead of C(hosts).
        type: list
        elements: str
        default: []
      parts:
        description: Its parts, by their names in C(parts) of O(platform), instead of C(hosts).
        type: list
        elements: str
        default: []
      factor:
        description: 'Multiplier for its even share of O(replicas): O(replicas) divided by the number of targets and rounded
          up, times this factor, rounded up again. For clusters, O(platform) sets it. More than 0, at most 1000.'
        type: float
        default: 1
      load_balancers:
        description: The load balancers that send requests to this target alone, by the names that C(status) shows. All
          others send requests to all instances.
        type: list
        elements: str
        default: []
      gates:
        description: Gates before the next target, with the options of M(progressive.rollout.gate).
        type: list
        elements: dict
      soak:
        description: How long the target serves with the new revision before its gates are asked. A duration.
        type: raw
        default: 0
  steps:
    description:
      - The steps of O(strategy=canary), a list. After the last one, all instances are new. Each item has exactly one
        of C(set_weight), C(set_replicas), C(instance_weight), C(pause), C(gate) and C(analysis), and may have C(name),
        C(on_failure) and C(reversible).
      - 'Or a mapping with C(group_size), C(cycles), C(acceptance), C(wait), C(gates) and C(allowed_failures): C(cycles)
        groups of that size, one after the other, then all the others.'
      - 'Or a mapping with C(ramp), C(start), C(factor) or C(increment), C(every), C(max), C(gates) and C(ahead): shares
        that rise by themselves.'
    type: raw
    default: []
    suboptions:
      set_weight:
        description: Percentage of requests that goes to new instances, higher in each step than before. There are as
          many new instances as that takes, or as C(set_replicas) said. 1 to 100.
        type: int
      set_replicas:
        description: Number of new instances. Percentages are of O(replicas). Without any C(set_weight), their number
          determines their share. A whole number or a percentage.
        type: raw
      instance_weight:
        description: Percentage of instances that are new, with one more than O(replicas) meanwhile. The rollout then
          waits for an operator, unless a C(pause) follows. 1 to 100.
        type: int
      pause:
        description: A duration, a mapping, or an empty mapping, which waits for an operator.
        type: raw
        suboptions:
          duration:
            description: How long the rollout pauses. Without it, the rollout waits for an operator. A duration.
            type: raw
          timeout:
            description: How long the rollout waits for an operator. V(1d) if not given. A duration, or V(unlimited).
            type: raw
          on_timeout:
            description: What happens after that time. As O(on_failure) says if not given.
            type: str
            choices:
              rollback: Roll back.
              hold: Stop until an operator decides.
              promote: Let the rollout pass.
      gate:
        description: A gate, with the options of M(progressive.rollout.gate).
        type: dict
      analysis:
        description: An analysis, like O(analysis), that ends after C(count) measurements.
        type: dict
      name:
        description: Name of the step.
        type: str
      on_failure:
        description: Replaces O(on_failure) in this step.
        type: str
        choices: [rollback, hold, continue]
      reversible:
        description: V(false) if there is no rollback from this step on, so that a failure holds the rollout.
        type: bool
        default: true
      group_size:
        description: Number of instances in a group. 1 to 10000.
        type: int
        default: 1
      cycles:
        description: Number of groups before all the others. 0 to 10000.
        type: int
        default: 3
      acceptance:
        description: What the rollout waits for after each group.
        type: str
        choices: {none: Nothing., timed: C(wait)., checks: C(gates).}
        default: none
      wait:
        description: How long to wait with C(acceptance=timed). A duration.
        type: raw
        default: 0
      allowed_failures:
        description: Number of failed new instances that are tolerated.
        type: int
        default: 0
      gates:
        description: Gates with C(acceptance=checks), or, in a C(ramp), after C(every) at each share, with the options
          of M(progressive.rollout.gate).
        type: list
        elements: dict
      ramp:
        description: How the share of requests rises from step to step.
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
        description: How long each share stays, once the load balancers have it and its instances are ready. A duration.
        type: raw
        default: 0
      max:
        description: The last percentage. Below 100, the rollout stays there until an operator promotes it. 1 to 100.
        type: int
        default: 100
      ahead:
        description: Whether the next step's new instances already start during a share, as far as O(budget) has room
          for them. They do not raise the share.
        type: bool
        default: false
  gates:
    description: What must let a rollout pass, and when, with any O(strategy). Each moment has a list of gates, which
      are asked one after the other. M(progressive.rollout.gate) documents their options.
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
        description: Gates once they get all requests, before the new revision becomes the stable one.
        type: list
        elements: dict
      rollback:
        description: Gates that are asked throughout. If one passes, the rollout is rolled back; any other answer has
          no effect.
        type: list
        elements: dict
  analysis:
    description: 'What is measured from a given step on, and judged after each measurement. A metric that fails ends the
      rollout as O(on_failure) says. One that cannot be measured holds the fleet as it is and waits for an operator. If
      not given, and there is no analysis in O(steps), O(gates) or O(targets) either, the load balancers'' requests to
      new and old instances are compared as long as both get some (not with O(strategy=blue_green)): a new revision that
      is worse is a failure, and nothing else has an effect. V({}) means no analysis.'
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
            description: How it is judged. If not given, V(threshold) with a condition, V(new_messages) with C(driver=instance_log),
              and V(sequential) otherwise.
            type: str
            choices:
              threshold: Checks conditions on each measurement.
              sequential: Compares new and stable instances after each measurement, and may decide after any of them.
              kayenta: Compares new and stable instances at the end, as Kayenta does.
              new_messages: Finds messages that only new instances log, for C(driver=instance_log).
          interval:
            description: How often it is measured. As in the analysis if not given. A duration.
            type: raw
          initial_delay:
            description: How long after the start of the analysis the first measurement is made. A duration.
            type: raw
            default: 0
          count:
            description: Number of measurements. As in the analysis if not given. At least 1.
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
            description: 'I(threshold): Expression over V(result) that is true for a success (V(result[0] >= 0.99)).'
            type: str
          failure_condition:
            description: 'I(threshold): Expression over V(result) that is true for a failure. A result that meets neither
              condition is inconclusive, and so is a NaN that no condition tests for with V(is_nan).'
            type: str
          failure_limit:
            description: 'I(threshold): Number of failures that are tolerated, V(-1) for any number. V(0) if not given.'
            type: int
          inconclusive_limit:
            description: 'I(threshold): Number of inconclusive results that are tolerated, V(-1) for any number.'
            type: int
            default: 0
          consecutive_failure_limit:
            description: 'I(threshold): Number of failures in a row that are tolerated, V(-1) for any number.'
            type: int
          consecutive_success_limit:
            description: 'I(threshold): Number of successes in a row after which the metric passes at once, V(0) for never.'
            type: int
            default: 0
          alpha:
            description: 'I(sequential): Probability of a false alarm by this metric, a share of the analysis'' C(alpha).
              An equal share if not given. Between 0 and 0.5.'
            type: float
          tolerance:
            description: 'I(sequential): Multiple of the stable instances'' errors, or seconds, that is tolerated. Between
              0 and 1000.'
            type: float
            default: 1.2
          quantile:
            description: 'I(sequential): Quantile of the seconds that is compared. Between 0 and 1.'
            type: float
            default: 0.5
          detect:
            description: 'I(sequential): Error rate that must be detected. It determines how many requests a verdict takes.
              Between 0 and 1.'
            type: float
            default: 0.05
          at_least:
            description: 'I(sequential): Error rate of the new instances from which they may count as worse. Lower rates
              never do, whatever the rate of the stable instances. 0 to 1.'
            type: float
            default: 0
          direction:
            description: 'I(kayenta): Direction of change that is bad.'
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
            description: 'I(kayenta): Multiple of the interquartile range that makes a value an outlier. Between 0 and
              1000.'
            type: float
            default: 3.0
          critical:
            description: 'I(kayenta): Whether its failure by itself fails the analysis.'
            type: bool
            default: false
          must_have_data:
            description: 'I(kayenta): Whether missing data is a failure.'
            type: bool
            default: false
          muted:
            description: 'I(kayenta): Whether it is left out of the judgment.'
            type: bool
            default: false
          effect_size:
            description: 'I(kayenta): Measure of the difference, for the four options that follow.'
            type: str
            choices: [mean_ratio, cles]
            default: mean_ratio
          allowed_increase:
            description: 'I(kayenta): Tolerated effect of an increase. More than 0.'
            type: float
          allowed_decrease:
            description: 'I(kayenta): Tolerated effect of a decrease. More than 0.'
            type: float
          critical_increase:
            description: 'I(kayenta): Effect of an increase that by itself fails the analysis. More than 0.'
            type: float
          critical_decrease:
            description: 'I(kayenta): Effect of a decrease that by itself fails the analysis. More than 0.'
            type: float
          group:
            description: 'I(kayenta): Group of the metric, for C(weights).'
            type: str
            default: metrics
          failure:
            description: 'I(new_messages): Which of the error messages that only new instances log count as a failure.'
            type: str
            choices:
              never: 'None: they are named in reasons, the timeline and the report.'
              any: One that occurred three times or in two measurements, and that no old instance logged in the following
                two measurements.
            default: never
          of:
            description:
              - 'I(access_log): What is compared. V(latency) if not given.'
              - 'I(load_balancer): What is compared, as the load balancers count it. V(errors) if not given.'
              - 'I(saturation): What is compared. V(all) if not given.'
            type: str
          statuses:
            description: 'I(access_log): Statuses that are errors: V(404), or V(5xx) for all from 500 to 599.'
            type: list
            elements: str
            default: [5xx]
          path:
            description:
              - 'I(access_log): Prefix of the paths of requests that are counted. V(/) if not given.'
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
          warm_up:
            description:
              - 'I(access_log): How long the times of a new instance are not compared after its first request. Of errors,
                the time in which those of cold instances fade to a third, at the slowest; V(0s) where instances are ready
                when they get requests, so that a verdict need not wait for that. A duration. V(60s) if not given.'
              - 'I(load_balancer): How long the latency of a new instance is not compared after its first request. Of
                errors, the time in which those of cold instances fade to a third, at the slowest; V(0s) where instances
                are ready when they get requests, so that a verdict need not wait for that. A duration. V(60s) if not
                given.'
              - 'I(saturation): How old an instance must be before its resource usage is compared. Restarts and C(oom)
                count from the first measurement. A duration. V(60s) if not given.'
            type: raw
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
              - 'I(prometheus, web): How long an answer may take. A duration. V(10s) if not given.'
            type: raw
          ignore:
            description: 'I(instance_log): Messages that contain one of these texts (V([connection reset by peer])) are
              not counted, regardless of case.'
            type: list
            elements: str
            default: []
          address:
            description: 'I(prometheus): URL of Prometheus (V(https://prometheus:9090)). Required.'
            type: str
          query:
            description: 'I(prometheus): PromQL expression for the current value.'
            type: str
          range:
            description: 'I(prometheus): How far back the values of C(query) are compared, all at once, instead of its
              current value. Only for the judge V(kayenta), with C(count) V(1). A duration, at least 10s.'
            type: raw
          step:
            description: 'I(prometheus): Time between two values. A 60th of C(range) if not given. A duration, at least
              1s.'
            type: raw
          errors:
            description: 'I(prometheus): PromQL expression for the errors since the analysis began. Goes with C(requests),
              instead of C(query).'
            type: str
          requests:
            description: 'I(prometheus): PromQL expression for the requests since the analysis began.'
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
            description: 'I(prometheus, web): Request headers.'
            type: dict
            default: {}
          validate_certs:
            description: 'I(prometheus, web): Whether the certificate must be valid.'
            type: bool
            default: true
          ca_path:
            description: 'I(prometheus, web): File on the controller with the CA certificates that the certificate is
              verified against.'
            type: str
          client_cert:
            description: 'I(prometheus, web): File on the controller with a client certificate.'
            type: str
          client_key:
            description: 'I(prometheus, web): File on the controller with its key, unless C(client_cert) contains it.'
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
            description: 'I(web): What V(POST) sends: a text as it is, or anything else as JSON.'
            type: raw
      interval:
        description: How often each metric is measured. A duration.
        type: raw
        default: 10s
      alpha:
        description: Probability that a good revision fails, over all metrics, instances and measurements of the judge
          V(sequential). The analyses of a rollout share the greatest one. Between 0 and 0.5.
        type: float
        default: 0.02
      on_enough:
        description: What happens if an operator was asked because there was too little data, and now there is enough
          and all is well.
        type: str
        choices:
          pass: It passes by itself.
          ask: The operator is notified, and still has to decide.
        default: pass
      pass:
        description: Score of the judge V(kayenta) that passes. A lower one waits for an operator. 0 to 100.
        type: float
        default: 95
      marginal:
        description: Score of the judge V(kayenta) below which the analysis fails. 0 to 100.
        type: float
        default: 75
      weights:
        description: Weights of the metric groups for the judge V(kayenta), in percent. Equal if not given.
        type: dict
      probe:
        description: Synthetic requests to the new instances in service, for times of little traffic. They are counted
          together with those of clients. A mapping like O(health), with its C(http), and with its C(interval) as the
          time between two requests to an instance.
        type: dict
      dry_run:
        description: Whether the analysis is only measured, judged and reported. It then never fails the rollout, and
          never asks an operator.
        type: bool
        default: false
      on_error:
        description: What happens if the gate cannot be asked.
        type: str
        choices: {fail: The gate fails., ignore: It lets the rollout pass.}
      starting_step:
        description: Number of the step in O(steps) from which it measures. At least 1.
        type: int
        default: 1
      bake:
        description: How long it continues once the new instances get all requests, before the new revision becomes the
          stable one. By then there is no stable revision to compare with, so this needs a metric with a condition. A
          duration.
        type: raw
        default: 0
  approval:
    description: How a rollout waits for an operator.
    type: dict
    default: {}
    suboptions:
      timeout:
        description: How long the rollout waits for an operator. V(1d) if not given. A duration, or V(unlimited).
        type: raw
      on_timeout:
        description: What happens after that time. As O(on_failure) says if not given.
        type: str
        choices:
          rollback: Roll back.
          hold: Stop until an operator decides.
          promote: Let the rollout pass.
      file:
        description: File on the controller that approves like V(promote), as with the gate driver V(approval).
        type: str
      url:
        description: Web service that approves in the same way.
        type: str
  auto_promote:
    description: With O(strategy=blue_green), whether the switch happens without an operator.
    type: bool
    default: true
  promote_delay:
    description: With O(strategy=blue_green) and O(auto_promote=true), how long the new set is ready before the switch.
      A duration.
    type: raw
    default: 0
  hold:
    description: How long old instances stay ready after the promotion, without requests. During that time, a rollback
      is one switch. With O(strategy=blue_green), V(30s) if not given. With O(strategy=canary), none stay if not given;
      if given, all of them also stay until the promotion. A duration.
    type: raw
  known_good:
    description: 'With O(strategy=canary), how long ago a revision may have been the stable one to be rolled out again
      without O(steps) and O(targets): all instances are replaced in one walk, which is watched as usual. It needs the
      settings that it had. A revision that a rollback left is not known to be good. With V(0), each revision takes the
      steps. A duration.'
    type: raw
    default: 0
  hold_replicas:
    description: With O(strategy=canary) and O(hold), how many old instances stay. Percentages are of the number before
      the rollout. V(100%) if not given. With fewer, a rollback starts the others. A whole number or a percentage.
    type: raw
  autoscaler:
    description: 'What scales the service outside of rollouts: C(driver) and its options. It is changed while a rollout
      lasts, and restored at its end. None if not given.'
    type: dict
    suboptions:
      driver:
        description: Name of the driver. One from another collection is V(namespace.collection.driver).
        type: str
        required: true
      mode:
        description: What happens to the autoscaler.
        type: str
        choices:
          hold: It changes no numbers while the rollout lasts.
          raise: Before the share of requests rises, the autoscaler's minimum is raised to the number of instances that
            carry that share, up to its maximum.
          follow: It changes no numbers itself, and the rollout goes on to the number it wants.
          none: It is left alone.
        default: hold
      limit:
        description: How long the autoscaler stays changed while the rollout waits for an operator, a freeze or a pause.
          After that it is restored until the rollout continues. It is restored at once if the run ends before the rollout
          does. A duration.
        type: raw
        default: 1h
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
      name:
        description:
          - 'I(hpa): Name of the HorizontalPodAutoscaler. Required.'
          - 'I(keda): Name of the ScaledObject. Required.'
        type: str
      namespace:
        description: 'I(hpa, keda): The namespace, by default that of the context.'
        type: str
      context:
        description: 'I(hpa, keda): The kubeconfig context, by default the current one. Without a kubeconfig, the service
          account of the pod that the playbook runs in is used.'
        type: str
      kubeconfig:
        description: 'I(hpa, keda): The kubeconfig file, by default the one in the environment variable C(KUBECONFIG).
          An absolute path.'
        type: str
  freeze:
    description:
      - Times at which a rollout does not move. What is in progress is finished, then the rollout waits. A rollback does
        not wait.
      - Each is either a range (C(from) and C(to)) or recurring (C(cron) and C(duration)).
    type: list
    elements: dict
    default: []
    suboptions:
      from:
        description: The beginning, a date or a date and time (V(2026-12-24 16:00)).
        type: raw
      to:
        description: The end, written likewise. A date includes the whole day.
        type: raw
      cron:
        description: Five cron fields. Needs the Python package C(cronsim) on the controller.
        type: str
      duration:
        description: How long it lasts. A duration, at least 1m.
        type: raw
      timezone:
        description: Name of the time zone.
        type: str
        default: UTC
      reason:
        description: Reason, shown while the rollout waits.
        type: str
  window:
    description:
      - The only times at which a rollout moves, a list like O(freeze). If both are given, a freeze takes precedence.
        V(always) lifts the limit for this run, and the timeline shows that.
      - A rollback moves at any time.
    type: raw
    suboptions:
      from:
        description: The beginning, a date or a date and time (V(2026-12-24 16:00)).
        type: raw
      to:
        description: The end, written likewise. A date includes the whole day.
        type: raw
      cron:
        description: Five cron fields. Needs the Python package C(cronsim) on the controller.
        type: str
      duration:
        description: How long it lasts. A duration, at least 1m.
        type: raw
      timezone:
        description: Name of the time zone.
        type: str
        default: UTC
      reason:
        description: Reason, shown while the rollout waits.
        type: str
  order:
    description: The position of the revision among all revisions, such as its commit time (V(1732300000)). A revision
      with a lower number than the stable one, or than that of the rollout in progress, is refused. Rollbacks are not.
    type: int
  older:
    description: Whether a revision that is older by O(order) may be rolled out anyway.
    type: bool
    default: false
  new_check:
    description: Whether O(health) may be a check that no running instance passes, since only the new revision answers
      it. If V(false), such a check is refused before anything is touched.
    type: bool
    default: false
  adopt:
    description: What runs before the first rollout. The first rollout replaces it as any other would replace the stable
      revision; later ones do not read this. None if not given.
    type: dict
    default: {}
    suboptions:
      revision:
        description: The revision that runs.
        type: str
        required: true
      servers:
        description: The entries that it has at the load balancers, by their names there. None if not given.
        type: list
        elements: str
  supersede:
    description: Whether a rollout of another revision that is in progress gives way to this one. A run that is working
      on it is told to give way, and this run waits for it for at most O(progress_deadline). If V(false), this rollout
      is refused.
    type: bool
    default: false
  wait:
    description: How long a run waits for an operator or the end of a freeze. After that it ends successfully with the
      rollout parked (RV(ignore:parked)). The next run continues it. A duration.
    type: raw
    default: 1h
  report:
    description: 'Where the rollout''s report is written on the controller, and kept up to date while the rollout runs.
      An absolute path that ends with V(.html), V(.md) (Markdown) or V(.xml) (JUnit), or with V(/) for a directory: it
      must exist, and its subdirectory with the name of the service gets all formats and an index of the service''s rollouts.
      None if not given.'
    type: str
  notify:
    description: 'Who is notified about the rollout: each receiver with C(driver), its options, and C(on), the events
      that it is notified of. Notifications never hold up a rollout. The journal does not keep the receivers, so each
      run needs them.'
    type: list
    elements: dict
    default: []
    suboptions:
      driver:
        description: Name of the driver.
        type: str
        required: true
      'on':
        description: The events that the receiver is notified of.
        type: list
        elements: str
        required: true
      template:
        description: A Jinja2 template for the message, in place of the driver's own, of at most 10,000 characters. It
          gets C(event), C(service), C(revision), C(previous), C(reason), C(by), C(text) and others; see the guide. Mark
          it with C(!unsafe), so that Ansible does not render it.
        type: str
      retries:
        description: How many times a failed attempt is repeated, after 1 s, 2 s, 4 s, ..., at most 30 s. 0 to 10.
        type: int
        default: 4
      command:
        description: 'I(command): The program and its arguments. Required.'
        type: list
        elements: str
      host:
        description:
          - 'I(command): Inventory host that the command runs on, the controller if not given.'
          - 'I(email): The SMTP server. Required.'
        type: str
      answer_within:
        description:
          - 'I(command): How long the command may take. A duration. V(60s) if not given.'
          - 'I(email, grafana_annotation, mattermost, slack, teams, webhook): How long an attempt may take. A duration.
            V(10s) if not given.'
        type: raw
      port:
        description: 'I(email): Its port. V(587) with STARTTLS, V(465) with TLS, V(25) without either. 1 to 65535.'
        type: int
      security:
        description: 'I(email): How the connection is encrypted.'
        type: str
        choices:
          starttls: The connection is upgraded to TLS before a message is sent.
          tls: It is encrypted from the start.
          none: It is not encrypted. No password is sent.
        default: starttls
      username:
        description: 'I(email): Name to log in with.'
        type: str
      password:
        description: 'I(email): Password to log in with.'
        type: str
      sender:
        description: 'I(email): Address that mail is sent from. Required.'
        type: str
      to:
        description: 'I(email): Addresses that mail is sent to. Required.'
        type: list
        elements: str
      validate_certs:
        description: 'I(email, grafana_annotation, mattermost, slack, teams, webhook): Whether the certificate must be
          valid.'
        type: bool
        default: true
      ca_path:
        description: 'I(email, grafana_annotation, mattermost, slack, teams, webhook): File on the controller with the
          CA certificates that the certificate is verified against.'
        type: str
      url:
        description:
          - 'I(grafana_annotation): URL of Grafana. Required.'
          - 'I(mattermost, slack, teams, webhook): URL of the webhook. It is a secret. Required.'
        type: str
      token:
        description: 'I(grafana_annotation): Token of a service account that may write annotations. Required.'
        type: str
      dashboard_uid:
        description: 'I(grafana_annotation): The dashboard. Without it, the annotation belongs to the organization.'
        type: str
      panel_id:
        description: 'I(grafana_annotation): The panel of the dashboard. Without it, all panels. At least 1.'
        type: int
      headers:
        description: 'I(webhook): Request headers.'
        type: dict
        default: {}
      secret:
        description: 'I(webhook): Key that signs the body. The header C(X-Rollout-Signature) has C(sha256=) and its HMAC.'
        type: str
      environment:
        description: 'I(webhook): Name of the environment in CDEvents.'
        type: str
        default: production
  metrics:
    description: Where the service's metrics are kept up to date, in OpenMetrics format, while its rollout runs. Give
      C(textfile), C(pushgateway), or both.
    type: dict
    default: {}
    suboptions:
      textfile:
        description: File on the controller for node_exporter's textfile collector. Each service needs a separate file.
          An absolute path that ends with V(.prom).
        type: str
      pushgateway:
        description: URL of a Pushgateway. The grouping key is C(job=rollout) with C(service).
        type: str
  release:
    description: 'The release that the service is a member of: services that are promoted together, in order, or not at
      all. None if not given.'
    type: dict
    default: {}
    suboptions:
      name:
        description: Name of the release, such as V(2026.47). Each release needs a new one.
        type: str
        required: true
      members:
        description: All members by name, each with C(service), C(after), C(soak) and C(reversible). Required for the
          member that begins first; the others may leave it out, or have to give the same.
        type: dict
      member:
        description: Which member this service is. The one with this O(service), or of its name, if not given.
        type: str
      after:
        description: The members that are promoted before anything of this one is started.
        type: list
        elements: str
      soak:
        description: For how long those must have been promoted. They are watched meanwhile. V(0) if not given. A duration.
        type: raw
      reversible:
        description: V(false) if the member cannot go back, as a schema migration. It keeps no old side, and what fails
          after it began holds the release instead of taking it back. V(true) if not given.
        type: bool
      with_canary:
        description: 'Whether all members take the steps of their canaries together: none leaves a step before all have
          passed it.'
        type: bool
        default: false
  restored_settings:
    description: What M(progressive.rollout.control) returned as RV(progressive.rollout.control#module:settings). Replaces
      all options except O(service) and O(store). Of the others, only secrets are used, since the journal does not keep
      them.
    type: dict
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: partial
    details: In check mode only. Progress lines and the timeline show what was really done.
seealso:
  - module: progressive.rollout.replace
  - module: progressive.rollout.promote
  - module: progressive.rollout.finish
  - module: progressive.rollout.rollback
"""

EXAMPLES = r"""
- name: Roll out 2.4.1 step by step, and roll back if it fails
  module_defaults:
    group/progressive.rollout.steps:
      service: shop
      revision: "2.4.1"
      replicas: 4
      budget: {max_surge: 2}
      platform: "{{ shop_platform }}"
      traffic: "{{ shop_traffic }}"
      health: {http: /healthz}
      store: "{{ shop_store }}"
  block:
    - name: Begin
      progressive.rollout.begin:

    - name: Replace
      progressive.rollout.replace:

    - name: Promote
      progressive.rollout.promote:

    - name: Finish
      progressive.rollout.finish:
  rescue:
    - name: Roll back
      progressive.rollout.rollback:

- name: Begin to replace every instance by one of the revision that runs
  progressive.rollout.begin:
    service: shop
    budget: {max_surge: 2}
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
    restart: true
  register: restart
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
msg:
  description: What was found, if no new rollout was opened.
  returned: when there is nothing to do, or a rollout is continued
  type: str
acting_host:
  description: The play's host whose tasks continue the rollout. The rollout is done once, whatever the play's hosts.
  returned: success
  type: str
elsewhere:
  description: Whether another host of the play does this, so that this one has nothing to do.
  returned: when it is so
  type: bool
next:
  description: What the rollout would do now. As RV(progressive.rollout.plan#module:next).
  returned: in check mode, when something would be done
  type: dict
"""
