"""`make serve`: the site at an address, which is looked at before anything is built.

It needs the documentation tools only.
"""

import socket
import sys
from collections.abc import Sequence

from mkdocs.__main__ import cli

PORTS_TO_TRY = 100


def parsed(address: str) -> tuple[str, int]:
    """Host and port of an address. Raises ValueError with a sentence for what is none."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise ValueError(
            f"{address!r} is no address; it looks like this: make serve ADDRESS=127.0.0.1:8001"
        )
    return host, int(port)


def refusal(host: str, port: int) -> OSError | None:
    """Why nothing can listen at an address; None if something can."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            listener.bind(where)
    except OSError as error:
        return error
    return None


def sentence(address: str) -> str:
    """What keeps an address from being served, and which one would do; "" if nothing does."""
    try:
        host, port = parsed(address)
    except ValueError as error:
        return str(error)
    if (reason := refusal(host, port)) is None:
        return ""
    others = range(port + 1, min(port + PORTS_TO_TRY, 65536))
    free = next((other for other in others if refusal(host, other) is None), None)
    advice = "" if free is None else f"; this is free: make serve ADDRESS={host}:{free}"
    return f"{address} cannot be served ({(reason.strerror or str(reason)).lower()}){advice}"


def main(arguments: Sequence[str]) -> None:
    """Serve at the one address given; exits with a sentence where that cannot be."""
    (address,) = arguments
    if problem := sentence(address):
        sys.exit(problem)
    cli(["serve", "--dev-addr", address])


if __name__ == "__main__":
    main(sys.argv[1:])
