# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/move.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: move
short_description: Move the journal of a service to another store
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Copies the journal of a service from O(store) to O(to_store), compares the copy, and marks the original as moved, so
    that it is not used by mistake. Instances and load balancers are not touched.
  - Refused while a run holds the lease of the service. A rollout that is parked or held is moved with it.
  - If it is killed, run it again, and it continues. Until the original is marked, it remains the journal.
options:
  to_store:
    description: 'Where the journal is moved to: C(driver) and its options.'
    type: dict
    required: true
    suboptions:
      driver:
        description: Name of the driver. One from another collection is V(namespace.collection.driver).
        type: str
        required: true
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
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: It does not observe the fleet.
seealso:
  - module: progressive.rollout.info
"""

EXAMPLES = r"""
- name: Move the journal of shop from files to etcd
  progressive.rollout.move:
    service: shop
    store: {driver: file, host: lb1, path: /var/lib/rollout}
    to_store:
      driver: etcd
      endpoints: [https://etcd1:2379, https://etcd2:2379, https://etcd3:2379]
      ca_path: /etc/ssl/etcd.pem
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
msg:
  description: What was moved, and what to set C(rollout_store) to now.
  returned: success
  type: str
"""
