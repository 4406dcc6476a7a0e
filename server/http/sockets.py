"""Sockets of the listeners."""

import resource
import socket

from rules_engine.server.http import limits


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket, without SO_REUSEPORT, so that a port in use is an error. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit these options.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.RECEIVE_BUFFER_BYTES)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SEND_BUFFER_BYTES)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(limits.UNREAD_SECONDS * 1000))
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def share_of_connections(most: int) -> int:
    """Return one listener's share of the connections that file descriptors allow, up to `most`.

    The soft limit of descriptors is raised if possible.
    """
    together = limits.CONNECTIONS + limits.PLAIN_CONNECTIONS
    wanted = together + limits.RESERVED_FILES
    soft, hard = (wanted if it == resource.RLIM_INFINITY else it for it in resource.getrlimit(resource.RLIMIT_NOFILE))
    if soft < wanted:
        soft = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(min(soft - limits.RESERVED_FILES, together) * most // together, limits.LEAST_CONNECTIONS)
