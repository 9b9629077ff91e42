"""The service. In its place comes yours."""

import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REVISION = os.environ["REVISION"]


class Shop(BaseHTTPRequestHandler):
    """Says which revision it is."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        text = REVISION.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


if REVISION == "bad":
    sys.exit("a mistake that no unit test has found")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
ThreadingHTTPServer((os.environ["ADDRESS"], int(os.environ["PORT"])), Shop).serve_forever()
