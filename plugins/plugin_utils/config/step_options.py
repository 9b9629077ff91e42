# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that single steps or roles take in addition to those of all steps."""

from __future__ import annotations

from ..inputs import values
from ..inputs.options import (
    DURATION,
    FLAG,
    MAPPING,
    TEXT,
    Field,
    Kind,
    Options,
    choice,
    unparsed,
    whole,
)
from ..state import commands

VARIABLE_NAMES = Field(
    "variables",
    Kind("list", unparsed, elements="str"),
    "Names of the variables that are defined. A name that begins with C(rollout_) and that no step"
    " takes is refused as misspelled. The roles pass all of them.",
)
UNPREPARED = Field(
    "unprepared",
    Kind("list", unparsed, elements="str"),
    "Hosts on which the tasks that prepare them have not run, so that nothing is begun. The roles"
    " pass them where V(rollout_prepare_tasks) is given.",
)
PLAY_HOSTS = Field(
    "hosts",
    Kind("list", unparsed, elements="str"),
    "The hosts that may be worked on, which are the hosts of the play. Only for a service that is"
    " deployed in place (C(driver=static) of O(platform)).",
)
REACHED = Field(
    "reached",
    MAPPING,
    "By host, the result of a task that reached it or failed to (C(unreachable) and C(msg)), for"
    " example of M(ansible.builtin.raw). Hosts that were not reached are left as they are, and"
    " count as failed.",
)
CONTINUED = "rollout"  # of these settings: the id of the rollout that continues with them
DIGEST = "digest"  # of these settings, as the journal had them
RESTORED_SETTINGS = Field(
    "restored_settings",
    MAPPING,
    "What M(progressive.rollout.control) returned as"
    " RV(progressive.rollout.control#module:settings). Replaces all options except O(service) and"
    " O(store). Of the others, only secrets are used, since the journal does not keep them.",
)
RESTART = Field(
    "restart",
    FLAG,
    "Replace the instances even if they already run this revision. O(revision) and O(replicas)"
    " default to what is running.",
    default=False,
)
REBALANCE = Field(
    "rebalance",
    FLAG,
    "If O(revision) already runs, move instances from crowded hosts to emptier ones until the hosts"
    " differ by at most one instance (zones first, if the platform has them). Each is replaced by"
    " an instance of the same revision and settings, within O(budget).\nHas no effect if instances"
    " are spread evenly, or in a rollout of another revision or a restart, which spread their"
    " instances anyway.",
    default=False,
)
TO = Field(
    "to",
    Kind("str", values.revision),
    "The revision to return to, one that was promoted and that the journal knows. The previous one"
    " if not given.",
)
COMMAND = Field(
    "command",
    choice(**commands.COMMANDS),
    "The command. Required, except with O(withdraw).",
)
WHY = Field("why", Kind("str", values.line), "Reason, for readers of the journal. No secrets.")
FORCE = Field(
    "force",
    FLAG,
    "With O(command=promote), switch with however many new instances are ready. The journal records"
    " this.",
    default=False,
)
COUNT = Field(
    "count",
    whole(1, values.MOST),
    "With O(command=set_target), how many new instances the canary is to have.",
)
HOST = Field(
    "host",
    TEXT,
    "With O(command=exclude) and O(command=include), the inventory host to leave out or to bring"
    " back. It is not left out of the next rollout.",
)
TASK_FILE = (
    "A relative path is looked up next to the playbook, in the working directory and next to the"
    " inventory."
)
SHOW = Field("show", FLAG, "Whether to also show the lines.", default=False)
ID = Field(
    "id",
    TEXT,
    "Id of a rollout that C(history.yml) shows. The last one if not given.",
)
TRY = Field(
    "try",
    MAPPING,
    "Settings that replace those of a past rollout's analyses: C(alpha), C(count), C(on_enough),"
    " C(pass), C(marginal), C(weights) and C(dry_run) of an analysis, and C(metrics) with a C(name)"
    " and the options of its judge, such as C(tolerance) and C(detect).",
)
FOLLOW = Field(
    "follow",
    FLAG,
    "Whether a playbook that leaves the rollout to another run shows it until it ends or waits for"
    " an operator. The playbook fails if the rollout does not end as expected, or if no run is"
    " working on it.",
    default=False,
)
WATCH = Field(
    "watch",
    DURATION,
    "How long C(watch.yml) asks background gates and analysis, and rollback gates, after a"
    " promotion. If one of them calls for it, it rolls back to the previous revision.",
    default=0,
)
OF_ROLES = Options(
    ID,
    TRY,
    FOLLOW,
    WATCH,
    RESTART,
    REBALANCE,
    TO,
    COMMAND,
    WHY,
    FORCE,
    COUNT,
    HOST,
    Field(
        "members",
        MAPPING,
        "Of C(release.yml): by member of O(release), its variables, which precede those given for"
        " all.",
    ),
    Field(
        "awx",
        MAPPING,
        "What the role C(awx) needs to know in addition to the service's variables. C(ansible-doc"
        " -t role progressive.rollout.awx) shows its options.",
    ),
    Field(
        "prepare_tasks",
        TEXT,
        f"File with tasks of your own. {TASK_FILE} C(prepare.yml) runs them on the hosts of"
        " O(platform), either before anything else in C(rollout.yml), or on its own long before.",
        default="",
    ),
    Field(
        "deploy_tasks",
        TEXT,
        f"File with tasks that deploy C(rollout_host_revision) on a host. {TASK_FILE} It is"
        " included in the play on each host that was taken out of rotation, and its handlers run"
        " before the host's health is checked.",
        required=True,
    ),
    Field(
        "rollback_tasks",
        TEXT,
        "File with tasks for rollbacks. O(deploy_tasks) if not given.",
        default="",
    ),
    Field(
        "check_tasks",
        FLAG,
        "Whether C(--check) also runs the tasks, in check mode, on all hosts that would be deployed"
        " to.",
        default=False,
    ),
)
OF_STEPS = (
    "fleet",
    "instances",
    "timeline",
    "gate",
    "label",
    "share",
    "hosts",
    "results",
    "watch",
    "reached",
    "through",
    "withdraw",
    "to_store",
    "turn",
)  # variables of single steps
