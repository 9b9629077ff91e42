"""Prints the bounds of the autoscaler of shop, or sets them: bounds.py [MIN MAX]."""

import json
import os
import sys
from pathlib import Path

BOUNDS = Path("/etc/shop/autoscaler.json")  # which the autoscaler reads: {"min": 2, "max": 12}

if sys.argv[1:]:
    least, most = map(int, sys.argv[1:])
    new = BOUNDS.with_suffix(".new")
    new.write_text(json.dumps({"min": least, "max": most}))
    os.replace(new, BOUNDS)
print(BOUNDS.read_text())
