"""Ask a URL until a file is there, then print the answers: load.py URL FILE."""

import collections
import json
import pathlib
import sys
import time
import urllib.request

url, end = sys.argv[1], pathlib.Path(sys.argv[2])
served, failed = collections.Counter(), collections.Counter()
while not end.exists():
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            served[answer.read().decode()] += 1
    except OSError as exc:
        failed[str(exc)] += 1
    time.sleep(0.01)
print(json.dumps({"served": served, "failed": failed}))
