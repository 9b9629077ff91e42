# SPDX-License-Identifier: GPL-3.0-or-later
"""Say that a host answers, with which Python and as which user."""

from __future__ import annotations

import os
import pwd
import sys


def main(request: object) -> dict[str, object]:
    """Return the version of Python ("3.11.2"), and the user's name and id, whatever is asked."""
    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return {"python": "%d.%d.%d" % sys.version_info[:3], "user": user, "uid": uid}
