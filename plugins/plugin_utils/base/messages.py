# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages' stable ids: what each kind of trouble means and what to do about it.

An id is a kind of trouble, not a line of code: places with the same meaning and remedy share it.
Ids are never reused. docs/reference/messages.md is made from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """What a message means, and what to do (Markdown)."""

    meaning: str
    remedy: str


SECTIONS: Mapping[str, str] = {
    "1": "Variables and options",
    "2": "Hosts, platforms and instances",
    "3": "Load balancers",
    "4": "Gates, analysis and metrics",
    "5": "Journal, lease and runs",
    "6": "Rollouts",
    "7": "Operator commands",
    "9": "Defects",
}

MESSAGES: Mapping[str, Message] = {
    # -- variables and options
    "PR-100": Message(
        "A driver from another collection refuses a variable or option. Nothing was touched.",
        "Correct the value.",
    ),
    "PR-101": Message("There is no variable or option of this name.", "Correct the name."),
    "PR-102": Message("A required variable or option is missing.", "Set it."),
    "PR-103": Message(
        "YAML turned the value into a number: 1.10 becomes 1.1, and in YAML 1.1, `1:30` is 90,"
        " `010` is 8, `0x1F` is 31 and `1_000` is 1000.",
        "Put the value in quotes, or write the number itself.",
    ),
    "PR-104": Message(
        "The value is outside its bounds. A service has at most 10,000 instances, and no duration"
        " exceeds a year.",
        "Use a value within the bounds that the message names.",
    ),
    "PR-105": Message(
        "The budget leaves no room to replace an instance, or allows no instance to fail.",
        "Allow at least one of `max_surge` and `max_unavailable`.",
    ),
    "PR-106": Message(
        "`rollout_replicas` follows the current number of instances and none is running yet, or its"
        " bounds contradict each other.",
        "Give a number for the first deployment, or correct the bounds.",
    ),
    "PR-107": Message(
        "The option has no effect with the other options given.",
        "Remove it, or choose the strategy or option it belongs to.",
    ),
    "PR-108": Message(
        "No driver has this name.",
        "Correct the name, or install the collection that provides the driver.",
    ),
    "PR-109": Message(
        "`rollout_steps` is malformed, or does not fit `rollout_replicas` and `rollout_budget`.",
        "Do what the message says.",
    ),
    "PR-110": Message(
        "A pattern matches no host, or a name is not an inventory host.",
        "Correct the pattern, or pass the inventory (`-i`).",
    ),
    "PR-111": Message(
        "The condition is not a valid expression.", "Correct it; `result` is the measured value."
    ),
    "PR-112": Message(
        "The text has an unknown placeholder or an unmatched brace.",
        "Correct the placeholder, or double the brace and put `!unsafe` before the text, so that"
        ' Ansible does not render it: `CONFIG: !unsafe \'{{"level": "info"}}\'`.',
    ),
    "PR-113": Message(
        "A file or directory named by an option does not exist on the controller, or cannot be read"
        " there.",
        "Put the file there, or correct the path.",
    ),
    "PR-114": Message(
        "Tags, `--limit` or a condition would skip every step of the rollout, so nothing would be"
        " done.",
        "Run without them, or tag the role. See [in a play](../how-to/in-a-play.md).",
    ),
    "PR-115": Message(
        "The play's `strategy`, `serial` or `max_fail_percentage` would break the batches of an"
        " in-place rollout.",
        "Remove it from the play.",
    ),
    "PR-116": Message(
        "A secret that the rollout was started with is not in the journal.",
        "Pass the variables that the message names, with the values that the rollout was started"
        " with.",
    ),
    "PR-117": Message(
        "A Python package that an option needs is not installed.",
        "Install it alongside ansible-core.",
    ),
    "PR-118": Message(
        "The value does not have the type or form that the option needs, for example a string where"
        " a list is needed.",
        "Write it as the message shows; quote anything that YAML would read as a number or a"
        " boolean.",
    ),
    "PR-119": Message(
        "The value is not one of those allowed here.",
        "Use one of the values that the message names.",
    ),
    "PR-120": Message(
        "The text is not a valid name for a service, label, header, user or the like.",
        "Keep to the characters and the length that the message names.",
    ),
    "PR-121": Message(
        "The value is not a duration.",
        'Write seconds (`90`), or a number with a unit: `"500ms"`, `"90s"`, `"10m"`, `"2h"`,'
        ' `"1d"`.',
    ),
    "PR-122": Message(
        "The value is not an address, a port or a URL.", "Write it as the message shows."
    ),
    "PR-123": Message(
        "The value is not a path of the kind needed here.",
        "Write an absolute path, using only the characters that the message names.",
    ),
    "PR-124": Message(
        "An item of `rollout_freeze` or `rollout_window` is neither a date range nor a recurring"
        " time, or it leaves no time to move.",
        "Write `from` and `to`, or `cron` and `duration`. See [freeze](../how-to/freeze.md).",
    ),
    "PR-125": Message("The value is empty.", "Write a value, or leave the option out."),
    "PR-126": Message(
        "Two things that must differ have the same name or address, or hosts differ in something"
        " that must be the same on all of them.",
        "Change one of those that the message names.",
    ),
    "PR-127": Message(
        "The value cannot be passed on, is reserved, or would reveal a secret.",
        "Do what the message says.",
    ),
    "PR-128": Message(
        "`--limit` excludes hosts of `rollout_platform.hosts`, so their instances would not be"
        " seen.",
        "Run without `--limit`, or name fewer hosts in `rollout_platform.hosts`.",
    ),
    "PR-129": Message(
        "The instance is not one of this service.", "Use a name that status.yml shows."
    ),
    "PR-130": Message(
        "The journal has no such rollout.",
        "Use an id that history.yml shows, or omit `rollout_id` for the last one.",
    ),
    "PR-131": Message(
        "By `rollout_order`, the revision is older than the stable one or than that of the rollout"
        " in progress.",
        "Roll out a newer revision, or go back with rollback.yml.",
    ),
    "PR-132": Message(
        "No analysis of the rollout has a metric of this name.",
        "Use one of the names that the message lists.",
    ),
    "PR-133": Message(
        "No running instance passes the check that `rollout_health` asks for, so it may be wrong.",
        "Correct it. If only the new revision answers it, set `rollout_new_check: true` for this"
        " rollout.",
    ),
    "PR-134": Message(
        "The members of `rollout_release` do not fit together: one comes after another that is no"
        " member, they come after each other, two are the same service, or `with_canary` cannot"
        " take their steps together. Nothing was touched.",
        "Correct the members, as the message says.",
    ),
    "PR-151": Message(
        "The targets of a rollout do not divide its hosts or load balancers.",
        "Name each in exactly one target of `rollout_targets`.",
    ),
    "PR-152": Message(
        "The template of a notification is not valid Jinja2, or uses a name that is not passed to"
        " it.",
        "Correct it; the message lists the names that are passed. Mark it with `!unsafe`, so that"
        " Ansible does not render it.",
    ),
    # -- hosts, platforms, instances
    "PR-200": Message(
        "A host could not be reached, or a command failed on it.", "Try `ansible HOST -m ping`."
    ),
    "PR-201": Message(
        "The platform could not carry out a request.",
        "Do what the message says; meanwhile the rollout keeps retrying.",
    ),
    "PR-202": Message(
        "The hosts have too few ports for all instances that run at the same time, surge included.",
        "Widen `rollout_platform.ports`, or add hosts.",
    ),
    "PR-203": Message(
        "The memory limits of a host's instances add up to more than the host has.",
        "Lower `memory` or `max_surge`, or add hosts.",
    ),
    "PR-204": Message(
        "A program, directory or user that instances need is missing on a host, or access to it is"
        " denied.",
        "Copy the revision to that host, or set `become`.",
    ),
    "PR-205": Message(
        "An image is missing or cannot be pulled.",
        "Push it, correct its name, or log in to its registry on that host.",
    ),
    "PR-206": Message(
        "The tag refers to different images on different hosts.",
        "Set `pull: always` once, or reference the image by digest.",
    ),
    "PR-207": Message(
        "Podman, Docker or systemd is missing on a host, or does not work for this user.",
        "Install or start it, or set `become`.",
    ),
    "PR-208": Message(
        "A unit or container of this name exists, but no rollout manages it.",
        "Remove it, or choose another name.",
    ),
    "PR-209": Message(
        "The connection or become plugin of a host does not work.",
        "Correct the host's variables in the inventory.",
    ),
    "PR-210": Message(
        "The Python on a host cannot run the agents, or has ended without an answer.",
        "Act on what it printed, which the message quotes: set `ansible_python_interpreter` to a"
        " Python 3.8 or later, or let sudo work without a terminal (`Defaults !requiretty`).",
    ),
    "PR-212": Message(
        "A host's answer is not one that an agent gives.",
        "Check `ansible_python_interpreter` and who else has access to that host.",
    ),
    "PR-213": Message(
        "Privilege escalation failed.", "Correct the password or method for `become`."
    ),
    "PR-214": Message(
        "The host's SSH key differs from the known one.",
        "If the host was reinstalled, remove the old key from the file that the message names;"
        " otherwise find out which machine is answering.",
    ),
    "PR-216": Message(
        "A host's records cannot be read or written; nothing is done there without them.",
        "Fix what the message names; the rollout waits.",
    ),
    "PR-219": Message(
        "There is no room for more instances.",
        "Widen `rollout_platform.ports`, and check the hosts.",
    ),
    "PR-221": Message(
        "A host does not answer; its last known state is used until it does.",
        "Bring it back, or remove it from the inventory.",
    ),
    "PR-222": Message(
        "The settings of an earlier revision are not available.",
        "Bring back the hosts that have them, or roll that revision out with the variables that the"
        " message names.",
    ),
    "PR-223": Message(
        "Instances run on a host that is no longer among `rollout_platform.hosts`.",
        "Stop them there, or add the host again.",
    ),
    "PR-224": Message(
        "Some hosts are not prepared for this rollout (`rollout_prepare_tasks`).",
        "Run prepare.yml; bring back hosts that could not be reached, or remove them.",
    ),
    "PR-225": Message(
        "No host reports the resources that its instances use.",
        "Bring the hosts back; until then, the metric says nothing about the revision.",
    ),
    "PR-226": Message(
        "The platform does not know the host resources that instances use.",
        "Use a metric of the driver `prometheus`, or a platform that runs instances on hosts.",
    ),
    "PR-227": Message(
        "Other programs have every port of `rollout_platform.ports` on all hosts, so no instance"
        " could start. Instances that remove.yml has left running are such programs.",
        "End what listens there, or give other ports. To replace it without a failed request, give"
        " other ports and set `rollout_adopt`.",
    ),
    "PR-228": Message(
        "An instance did not end within `rollout_platform.stop_timeout` of its stop signal, so it"
        " was killed. Requests that it still had may have failed.",
        "Have the program end at its stop signal (`stop_signal`), or raise `stop_timeout`.",
    ),
    "PR-240": Message(
        "The Kubernetes API server does not answer, or refused a request.",
        "Act on its own error text, which the message quotes; meanwhile the rollout keeps"
        " retrying.",
    ),
    "PR-241": Message(
        "The rollout cannot log in to a Kubernetes cluster.",
        "Name a kubeconfig and one of its contexts; try `kubectl --context NAME get deployments`.",
    ),
    "PR-242": Message(
        "The workload, or its container, does not exist.",
        "Create it, or correct `workload`, `namespace` or `container`.",
    ),
    "PR-243": Message(
        "The workload cannot be rolled out as it is, or something else is changing it at the same"
        " time.",
        "Do what the message says.",
    ),
    "PR-244": Message(
        "The account lacks rights in the namespace. Nothing was touched.",
        "Apply the Role that the message shows, and bind it to the account.",
    ),
    "PR-245": Message(
        "Kubernetes creates no more pods: a quota is exhausted, or an admission controller rejects"
        " them.",
        "Raise the quota, or fix what the message names; the rollout waits until its progress"
        " deadline.",
    ),
    "PR-246": Message(
        "Something other than the rollout changed the Deployment or its ReplicaSets while it was in"
        " progress.",
        "Undo that change, or bring the Deployment to the intended state with `kubectl`, then"
        " rerun.",
    ),
    "PR-247": Message(
        "A rollout's cluster is named twice, or is not named where it is needed.",
        "Name each cluster once, and name the same ones in `rollout_platform` and"
        " `rollout_traffic`.",
    ),
    "PR-248": Message(
        "The parts of a platform cannot be rolled out together as they are.",
        "Do what the message says; each part is a platform of its own, and all are behind the same"
        " load balancers.",
    ),
    "PR-249": Message(
        "Annotations of the Deployment's pod template were changed while a rollout lasted, as"
        " `kubectl rollout restart` and tools that follow secrets do. The new revision takes them"
        " over; pods of it that were started before stay.",
        "If those pods have to read something anew, restart the service after the rollout"
        " (`restart.yml`).",
    ),
    "PR-250": Message(
        "No swarm manager answers, or one of several does not.",
        "Start Docker there, restore the quorum, or correct `hosts`, `socket` or `become`;"
        " meanwhile the rollout keeps retrying.",
    ),
    "PR-251": Message(
        "A host of `rollout_platform.hosts` is not a manager, or belongs to another swarm.",
        "Name the managers of one swarm.",
    ),
    "PR-252": Message(
        "The swarm lacks a secret, a config or a network.",
        "Create it, for example with `docker secret create`, or correct its name.",
    ),
    "PR-253": Message(
        "Swarm does not run an instance; the message quotes its own error text.",
        "Act on it: push the image, add nodes, or correct `constraints` or `reserve`.",
    ),
    "PR-254": Message(
        "Swarm refused a request of the rollout.",
        "Act on its own error text, which the message quotes; meanwhile the rollout keeps"
        " retrying.",
    ),
    "PR-255": Message(
        "The image of an instance on a Swarm was changed by something other than a rollout. The"
        " instance is shown with the revision of that image, and the next rollout replaces it.",
        "Roll out the revision that is to run.",
    ),
    "PR-256": Message(
        "Instances of a rollout run another revision than the one that was asked for: something has"
        " changed their image, or what an earlier journal started has their place. The rollout is"
        " held, and nothing is promoted.",
        "Roll back (`rollback.yml`), find out what has changed them, and roll out again.",
    ),
    "PR-257": Message(
        "The Service of a rollout on Kubernetes sends requests to more than its pods: to those of"
        " other workloads, to pods without any, or to addresses in an EndpointSlice that was made"
        " by hand. While a rollout lasts, only its own pods would get requests.",
        "Give the workload a Service that selects its pods alone, or remove `rollout_traffic`.",
    ),
    "PR-258": Message(
        "It could never be known at which port the pods of a workload listen: their container names"
        " none, or the load balancer and the platform know them at different ports.",
        "Set `rollout_platform.port` to the port that the load balancer sends requests to.",
    ),
    "PR-259": Message(
        "An instance was stopped, and programs of it still run: they have left its unit or its"
        " session, so that no stop reaches them. Their port stays taken.",
        "End them on the host, and have the program stay in the foreground, in the unit and in the"
        " session in which it was started.",
    ),
    # -- load balancers
    "PR-260": Message(
        "The autoscaler could not be read or changed, or something else changed it at the same"
        " time. The rollout keeps retrying.",
        "Fix what the message names.",
    ),
    "PR-261": Message(
        "`rollout_autoscaler` names an autoscaler that does not exist, that cannot be managed, or"
        " that was deleted during the rollout.",
        "Correct `rollout_autoscaler`, or omit it.",
    ),
    "PR-262": Message(
        "Something else changed the autoscaler while a rollout was managing it. The new value"
        " stays, and from then on the rollout leaves the autoscaler alone.",
        "Check that the new value is intended.",
    ),
    "PR-263": Message(
        "The autoscaler could not be restored to what it was. The journal has the original.",
        "Fix what the message names, then run one of the service's playbooks again: it restores the"
        " autoscaler.",
    ),
    "PR-264": Message(
        "The number of replicas of the workload was changed there while a rollout lasted: by hand,"
        " by an autoscaler or by GitOps. The rollout, and a rollback, go on to that number, unless"
        " `rollout_replicas` gives another one.",
        "Check that the new number is intended. A number that is given is changed with"
        " `control.yml`, or in the playbook.",
    ),
    "PR-265": Message(
        "A ConfigMap or a Secret that pods read when they start has changed since their revision"
        " was rolled out. Pods of that revision that are started again read the present one, so a"
        " rollback does not bring back what they had read.",
        "If the revision needs what the object had then, put that back before the rollout or the"
        " rollback, or give each version of the object its own name.",
    ),
    "PR-300": Message(
        "A load balancer could not be queried or changed.",
        "Do what the message says; meanwhile the rollout keeps retrying.",
    ),
    "PR-301": Message(
        "The load balancer is not running or cannot be reached.",
        "Start it; check the socket or address, and `become`.",
    ),
    "PR-302": Message("The load balancer is too old.", "Upgrade it."),
    "PR-303": Message(
        "The load balancer has too few servers for all instances that run at the same time.",
        "Prepare more in its configuration, and reload it.",
    ),
    "PR-304": Message(
        "The load balancer's configuration lacks what the rollout needs.",
        "Change it as the message says.",
    ),
    "PR-305": Message(
        "The answer is not one that this kind of load balancer gives.",
        "Check what is listening on that socket or address.",
    ),
    "PR-307": Message(
        "The load balancer did not apply an update.",
        "Check its log and whether it was reloaded, then run again.",
    ),
    "PR-308": Message(
        "The instance is ready, but the load balancer's own check fails.",
        "Compare the two checks, and check whether the load balancer can reach the instance.",
    ),
    "PR-309": Message(
        "Switching the traffic failed.", "Fix the load balancer, then roll out again."
    ),
    "PR-310": Message(
        "The load balancer cannot do what an option asks for.",
        "Remove the option, or use a load balancer that supports it.",
    ),
    "PR-311": Message(
        "The directory for locks and epochs cannot be written.",
        "Set another `rollout_traffic.path`, or grant access.",
    ),
    "PR-312": Message(
        "A load balancer sent requests to hosts that are out of rotation while tasks deploy: it"
        " lost its state, or a host came up that it had found down before. They are out again.",
        "Set a `state_file`, unless the hosts were down before.",
    ),
    "PR-313": Message(
        "A Gateway refuses the route.",
        "Act on its own error text, which the message quotes and the route's status also has.",
    ),
    "PR-314": Message(
        "A load balancer's pool has servers of another service.",
        "Give each service its own `rollout_traffic.backend` (or `upstream`). Servers that are left"
        " over from a rollout with wrong variables: roll out that service with the right ones, or"
        " remove them at the load balancer.",
    ),
    "PR-336": Message(
        "A load balancer has prepared servers in use that lead to no instance of the service, and"
        " nothing there says by which service, or by whom.",
        "Find out who uses them. Put those that nobody needs into maintenance (HAProxy: `set server"
        " BACKEND/NAME state maint`), or give the service a separate backend.",
    ),
    "PR-337": Message(
        "Another program may change the state or the weight of a server during the rollout, as an"
        " agent does that HAProxy asks (`agent-check`): it could give it no requests, or bring it"
        " back while it is deployed.",
        "Remove `agent-check` from the server's line, or disable it for as long as rollouts take:"
        " `disable agent BACKEND/NAME`.",
    ),
    "PR-338": Message(
        "The pool of a load balancer has servers that no rollout manages, such as those that"
        " somebody has written into its configuration. They keep their share of the requests,"
        " during the rollout and after it, and analyses do not count them.",
        "If they run the service, name them in `rollout_adopt`: the first rollout replaces them."
        " Otherwise take them out of the pool once the rollout's instances can carry the requests.",
    ),
    "PR-339": Message(
        "The state file of a load balancer has the servers of other backends as well. Each change"
        " would replace it by those of the service's backend, and the others would be lost at the"
        " next reload.",
        "Give each backend a separate file: `load-server-state-from-file local` and"
        " `server-state-file-name` in HAProxy's configuration, and another"
        " `rollout_traffic.state_file`.",
    ),
    "PR-342": Message(
        "A host that is deployed in place has no server in the configuration of a load balancer, at"
        " the address and the port that the inventory gives it. A rollout in place never adds one.",
        "Add the server, or correct `ansible_host` or `rollout_platform.port`. After a change of"
        " the port, HAProxy takes the earlier one from its state file: remove that file before the"
        " reload.",
    ),
    "PR-343": Message(
        "The server of a host that is deployed in place has weight 0, so that it gets no requests."
        " A rollout in place never changes a weight.",
        "Set its weight at the load balancer, or leave the host out of `rollout_platform.hosts`.",
    ),
    "PR-344": Message(
        "`rollout_platform` starts instances, and the service's hosts were deployed in place"
        " before, or the other way round. There is no rollout from one to the other.",
        "Use another `rollout_service`, or remove what rollouts have left of the service"
        " (`remove.yml`) and declare what runs (`rollout_adopt`).",
    ),
    "PR-345": Message(
        "A host passes `rollout_health`, and fails the load balancer's own check. It would stay out"
        " of rotation once it is deployed.",
        "Compare the two checks, or correct the load balancer's configuration. If its check only"
        " takes long, make `rollout_health.deadline` longer than that.",
    ),
    "PR-346": Message(
        "What runs cannot be adopted with these variables. Nothing was touched.",
        "Do what the message says.",
    ),
    "PR-347": Message(
        "A server of `rollout_adopt` is not one that can be adopted, or is not at its load balancer"
        " any more.",
        "Correct the names, or the load balancer's configuration, as the message says.",
    ),
    "PR-348": Message(
        "The revision to roll out is the one that runs on adopted servers. Nothing was touched.",
        "Roll out another revision, or set `rollout_restart: true`: then new instances of the same"
        " revision take the servers' place.",
    ),
    "PR-349": Message(
        "Adopted servers were replaced. They are out of rotation, and still in the load balancers'"
        " configuration: a restart of a load balancer may put them back in rotation.",
        "Delete them from the configuration, then stop their programs, once no client is connected"
        " to them.",
    ),
    "PR-350": Message(
        "A load balancer answers, but has refused the same change with the same words for a minute"
        " and in at least five attempts, and no instance that ran before was replaced. Waiting for"
        " longer would change nothing.",
        "Act on the load balancer's own words, which the message quotes, then roll out again.",
    ),
    # -- gates, analysis, metrics
    "PR-400": Message(
        "A gate could not be asked.",
        "Fix it; with `on_error: ignore` the rollout continues without it.",
    ),
    "PR-401": Message(
        "A gate did not pass within its `timeout`.", "Find out what it was waiting for."
    ),
    "PR-402": Message("A gate failed.", "Find out what it checks."),
    "PR-403": Message("A rollback gate asked for a rollback.", "Find out what it watches."),
    "PR-404": Message(
        "The file of an approval is not a regular file, or cannot be read.",
        "Correct it, or name another.",
    ),
    "PR-420": Message(
        "A metric could not be measured, which says nothing about the revision.",
        "Correct the metric, or what it queries.",
    ),
    "PR-422": Message("The analysis failed the new revision.", "Fix the revision."),
    "PR-423": Message(
        "The result of a metric does not have the form that its judge, `path` or condition needs.",
        "Look at the result that the message shows; correct the query, the `path` or the"
        " condition.",
    ),
    "PR-424": Message(
        "The rollout has no value for a placeholder of a metric, or does not have two revisions to"
        " compare, as in a first deployment.",
        "In such a rollout, use a metric that needs neither, or none.",
    ),
    "PR-425": Message(
        "The web service or Prometheus server that a metric queries gave no usable answer.",
        "Correct the address or the query, or fix the service.",
    ),
    "PR-426": Message(
        "A metric's command failed, or printed no JSON.",
        "Correct the command; its output is in the message.",
    ),
    "PR-427": Message(
        "The new instances got no requests, so nothing could be measured.",
        "Wait for traffic, or send synthetic requests with `probe`.",
    ),
    "PR-428": Message(
        "A load balancer's access log cannot be read.",
        "Correct `file`, the log's permissions, or the load balancer's log format.",
    ),
    "PR-429": Message(
        "The host resources that instances use are not known.",
        "Check the hosts that the message names, or use a platform that runs instances on hosts.",
    ),
    "PR-434": Message(
        "An instance's log cannot be read, or the platform does not report where it is.",
        "Correct what the message names, such as the log's permissions, or omit the metric.",
    ),
    "PR-450": Message(
        "A metric has too few past values of the two revisions.",
        "Measure later, or with a shorter `step`.",
    ),
    # -- journal, lease, runs
    "PR-500": Message(
        "The journal cannot be read or written.",
        "Fix what the message names; instances are found even without the journal.",
    ),
    "PR-501": Message(
        "Another run holds the service's lease.",
        "Wait for its end, abort its rollout (abort.yml), or supersede it. A run that takes its"
        " service back is only waited for.",
    ),
    "PR-502": Message("A step was run on several hosts of a play.", "Set `run_once: true` on it."),
    "PR-503": Message(
        "Another run has taken over the service; this run stopped before its next action.",
        "Check who holds the lease (status.yml).",
    ),
    "PR-504": Message(
        "The run was cancelled or killed; the current action was completed.",
        "Rerun the playbook to resume.",
    ),
    "PR-505": Message(
        "Another run superseded this rollout and continues it.",
        "Nothing; if that run has ended, run this one again.",
    ),
    "PR-506": Message("A journal file is damaged.", "Do what the message says."),
    "PR-507": Message(
        "The journal was written by a newer version.", "Upgrade the collection on this controller."
    ),
    "PR-508": Message(
        "The journal's store does not answer, or cannot write at the moment. The service stays as"
        " it is. A run that begins, continues or takes back a rollout waits, for up to"
        " `rollout_progress_deadline`, or for 10 s where the store has not answered it before; a"
        " status query and a command do not.",
        "Fix what the message names; if the run has ended in the meantime, run the playbook again.",
    ),
    "PR-509": Message(
        "The record of a service is too large for the store.", "Use another kind of store."
    ),
    "PR-510": Message(
        "The journal's store refuses the user.",
        "Correct the user and password, or the user's privileges.",
    ),
    "PR-511": Message(
        "The journal's store was unavailable for longer than `rollout_progress_deadline`, or has"
        " not answered at all in the first 10 s of a run. The service stays as it is.",
        "Fix the store, or its address in `rollout_store`, then run the playbook again: a rollout"
        " in progress continues.",
    ),
    "PR-512": Message(
        "The journal was moved to another store, or is an incomplete copy.",
        "Set `rollout_store` to where the journal is, or run store.yml again.",
    ),
    "PR-513": Message(
        "The store that the journal is to be moved to already has a journal of the service.",
        "Name another store, or remove that journal.",
    ),
    "PR-514": Message(
        "The copy of a journal differs from what was written. The original is still in use.",
        "Remove the copy, then run store.yml again.",
    ),
    "PR-515": Message(
        "Instances on a host, or entries at a load balancer, belong to a journal in another place"
        " than `rollout_store`.",
        "Correct `rollout_store`; move a journal with store.yml. If the journal is lost, remove the"
        " file that the message names.",
    ),
    "PR-516": Message(
        "remove.yml could not remove the journal; all else of the service is removed.",
        "Do what the message says.",
    ),
    "PR-517": Message(
        "remove.yml could not remove all that rollouts have left. The journal is still there.",
        "Mend what the message names, and run remove.yml again: it removes the rest.",
    ),
    # -- rollouts
    "PR-600": Message("The rollout failed.", "The message has the reason."),
    "PR-601": Message(
        "A rollout of this service is in progress.",
        "Resume it, roll it back (rollback.yml), or set `rollout_supersede: true`.",
    ),
    "PR-602": Message(
        "The strategy, steps or gates differ from those the rollout started with.",
        "Rerun with those, or abort the rollout and start again.",
    ),
    "PR-603": Message(
        "The settings differ from those the rollout started with.",
        "Rerun with those, or set `rollout_supersede: true`.",
    ),
    "PR-604": Message(
        "More instances failed than `rollout_failure_limit` allows.",
        "Fix the revision; the last failure is in the message.",
    ),
    "PR-605": Message(
        "There was no progress within `rollout_progress_deadline`.",
        "Check the instances and hosts that the message names.",
    ),
    "PR-606": Message(
        "The rollout is held until an operator decides.", "Resume it (resume.yml), or roll it back."
    ),
    "PR-607": Message(
        "The rollback failed as well.", "Fix what the message names, then run the rollback again."
    ),
    "PR-608": Message(
        "The rollout was rolled back.", "Fix the revision, and roll it out under another name."
    ),
    "PR-609": Message(
        "There is nothing to roll back to, or what the earlier revision needs is missing.",
        "Do what the message says.",
    ),
    "PR-610": Message(
        "Instances were not stopped because their host is unreachable.",
        "Rerun when the host is back, or remove it from the inventory.",
    ),
    "PR-611": Message(
        "The step does not fit the phase of the rollout.", "Run rollback.yml, or the rollout again."
    ),
    "PR-612": Message(
        "The run ended while the rollout waits for an operator (parked).",
        "Continue with promote.yml, or rerun.",
    ),
    "PR-613": Message(
        "No stable instance is in service any more.",
        "`rollout_on_stable_lost` decides what happens.",
    ),
    "PR-614": Message(
        "In place: too many hosts failed or are unreachable.", "Fix the hosts, then rerun."
    ),
    "PR-615": Message(
        "In place: the tasks ended before they deployed the instance.",
        "Use `when`, a block, or `meta: end_role`; then rerun.",
    ),
    "PR-616": Message(
        "What the step waited for did not happen in time.",
        "Check the instances that the message names, then rerun.",
    ),
    "PR-617": Message(
        "The step does not fit how instances are replaced: `rollout_platform.driver` starts its own"
        " instances, or leaves them to your tasks (in place).",
        "Use the playbook or role that the message names.",
    ),
    "PR-618": Message(
        "`rollout_traffic` has changed, but the strategy needs old and new instances on the same"
        " load balancers.",
        "Apply the change with a rolling rollout (restart.yml) first.",
    ),
    "PR-619": Message(
        "The new revision has too few ready instances for the requested share.",
        "Scale it up first.",
    ),
    "PR-620": Message(
        "All instances are as intended, but the platform did not take the rollout over.",
        "Do what the message says, then rerun: the rollout continues there.",
    ),
    "PR-621": Message(
        "Dead instances were not removed by the end of the rollout. They get no requests.",
        "Check the hosts that the message names. The next rollout removes the instances.",
    ),
    "PR-630": Message(
        "A rollout's report could not be written. The rollout continues without it.",
        "Create the directory of `rollout_report` on the controller, or grant access; report.yml"
        " writes the report again.",
    ),
    "PR-631": Message(
        "A receiver of `rollout_notify` could not be notified. The rollout continues.",
        "Fix what the message names. Notifications that the run could not send before its end are"
        " sent by the service's next run; those that failed in all attempts are not sent again.",
    ),
    "PR-632": Message(
        "A rollout's metrics could not be written or pushed. The rollout continues.",
        "Create the directory of `rollout_metrics.textfile` on the controller, grant access, or fix"
        " the Pushgateway.",
    ),
    "PR-633": Message(
        "The release that the service is to be a member of is not in progress, and its members are"
        " not given.",
        "Run `release.yml`, or give `rollout_release.members`.",
    ),
    "PR-634": Message(
        "The service cannot be a member of the release: the release has ended or goes back, it"
        " began with other members, or a member belongs to another release in progress. Nothing"
        " was touched.",
        "Do what the message says; a release that has ended needs another name.",
    ),
    "PR-635": Message(
        "The rollout was rolled back because its release goes back: another member failed, or an"
        " operator aborted the release.",
        "The message names the member. Correct it, and release again under another name.",
    ),
    "PR-636": Message(
        "The release has not ended with a promotion, or was aborted and not all members are back.",
        "The message names the members that are held or wait. Run `release.yml` again to continue,"
        " or with `rollout_command=abort` to take all back.",
    ),
    "PR-637": Message(
        "The release of a member that cannot go back with it was taken back before the member was"
        " promoted. Nothing was touched.",
        "Roll the member back with `abort.yml`; then release it again under another name.",
    ),
    "PR-638": Message(
        "The service is a member of a release in progress, and was to be rolled out without it: the"
        " release would replace it soon after. Nothing was touched.",
        "Run `release.yml`, wait for the end of the release, or abort it.",
    ),
    "PR-639": Message(
        "`rollout_service` is given for all members of a release, with `-e` or as a fact, so that"
        " shared variables would have the same name for each of them. Nothing was touched.",
        "Remove it: each member's service is in `rollout_release.members`.",
    ),
    # -- operator commands
    "PR-700": Message(
        "The command does not fit the phase of the rollout, or its rollout has ended, or goes on"
        " with other settings.",
        "Use one that the message names.",
    ),
    "PR-701": Message(
        "The rollout cannot be scaled to this number.", "The message has the reason."
    ),
    "PR-702": Message(
        "The command was withdrawn: its sender could not continue the rollout.",
        "The message has the reason.",
    ),
    "PR-703": Message(
        "The other run did not give way, or did not end, in time.",
        "Check what it is doing (status.yml), and run again.",
    ),
    "PR-704": Message(
        "No run is working on the rollout that was followed.",
        "Do what the message says: run the rollout again, or roll it back.",
    ),
    "PR-705": Message(
        "The rollout that was followed did not end as expected.",
        "The block above the message shows what failed, what serves now, and what to do.",
    ),
    "PR-706": Message(
        "A gate or an analysis failed after the promotion, within `rollout_watch`.",
        "The message has the reason. The service was rolled back, unless the message says"
        " otherwise.",
    ),
    "PR-707": Message(
        "The service cannot be removed: a rollout of it, or a release that it is a member of, is in"
        " progress.",
        "End it with promote.yml, abort.yml or rollback.yml, then run remove.yml again.",
    ),
    # -- defects
    "PR-900": Message("An internal error.", "Report it, with the output of `-vvv`."),
    "PR-901": Message(
        "Another version of the collection was installed while a run was under way.",
        "Run the playbook again: the new version continues the rollout.",
    ),
}
