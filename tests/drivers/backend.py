# SPDX-License-Identifier: GPL-3.0-or-later
"""A backend for the drivers' tests: `backend.py ADDRESS PORT NAME [CERTIFICATE]`. `/` answers
NAME; `/hold` does too, but only once somebody has asked for `/release`; `/missing` is 404; `/hits` says how many
requests there were beside `/healthz` and itself.
"""

import asyncio
import ssl
import sys

NAME, hits, released = sys.argv[3], 0, asyncio.Event()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global hits
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split()[1]
            hits += path not in ("/healthz", "/hits", "/release")
            if path == "/release":
                released.set()
            elif path == "/hold":
                await released.wait()
            body = str(hits) if path == "/hits" else NAME
            status = "404 Not Found" if path == "/missing" else "200 OK"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    tls = None
    if sys.argv[4:]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(sys.argv[4])  # with its key
    server = await asyncio.start_server(serve, sys.argv[1], int(sys.argv[2]), ssl=tls)
    async with server:
        await server.serve_forever()


asyncio.run(main())
