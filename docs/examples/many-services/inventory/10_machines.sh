#!/bin/sh
# Prints the machines for Ansible. Yours may come from a cloud, or from any inventory plugin.
cat <<'END'
{
  "all": {"hosts": ["app1.example.com", "app2.example.com", "app3.example.com", "lb1.example.com"]},
  "_meta": {
    "hostvars": {
      "app1.example.com": {"ansible_host": "10.0.0.11", "services": ["api", "web", "worker", "mailer"]},
      "app2.example.com": {"ansible_host": "10.0.0.12", "services": ["api", "web", "worker"]},
      "app3.example.com": {"ansible_host": "10.0.0.13", "services": ["api", "web"]},
      "lb1.example.com": {"ansible_host": "10.0.0.2", "services": ["haproxy"]}
    }
  }
}
END
