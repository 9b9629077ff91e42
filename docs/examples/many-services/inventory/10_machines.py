#!/usr/bin/env python3
"""Print the machines for Ansible. Yours may come from a cloud, or from any inventory plugin."""

import json

MACHINES = {  # name: address, and what runs there
    "app1.example.com": ("10.0.0.11", ["api", "web", "worker", "mailer"]),
    "app2.example.com": ("10.0.0.12", ["api", "web", "worker"]),
    "app3.example.com": ("10.0.0.13", ["api", "web"]),
    "lb1.example.com": ("10.0.0.2", ["haproxy"]),
}

hostvars = {
    name: {"ansible_host": address, "services": services}
    for name, (address, services) in MACHINES.items()
}
print(json.dumps({"all": {"hosts": list(MACHINES)}, "_meta": {"hostvars": hostvars}}))
