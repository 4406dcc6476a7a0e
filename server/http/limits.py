"""Limits on the time, memory and connections that clients may use.

Most are counted when exceeded, under a name in `Limit`; docs/how-to/operate.md lists them.
"""

from enum import Enum

MIB = 1024 * 1024

CONNECTIONS = 2048
"""Open connections, handshakes included. Of more callers at once, the others wait in the backlog."""

PLAIN_CONNECTIONS = 64
"""Open connections of the plain HTTP listener: a kubelet, some Prometheus servers, and operators."""

CLOSED_SHARE = 128
"""Up to 1/128 of the allowed connections are closed at a time to make room: finding them takes 0.4 ms."""

RESERVED_FILES = 64
"""File descriptors reserved for watches, logs and reloaded files; a server with a live cluster uses about 30."""

LEAST_CONNECTIONS = 8
"""Minimum number of connections, even if few file descriptors are available."""

BACKLOG = 4096
"""Listen backlog, at most net.core.somaxconn, whose default is the same: a client whose connection does not fit
tries again after a second."""

ACCEPTED_AT_ONCE = 16
"""Connections accepted per event loop iteration: a TLS handshake takes about a millisecond."""

ACCEPT_PAUSE_SECONDS = 0.1
"""Pause before accepting again after file descriptors run out."""

RECEIVE_BUFFER_BYTES = 8 * 1024
"""SO_RCVBUF, which Linux doubles. With less, bodies take many turns of the event loop: beside 60 callers with pods of
62 KiB, the p99 of small pods is 0.06 s, and 0.15 with 4 KiB. With more, a flood takes more memory: the buffers of a TLS
connection grow to what one read brings, and do not shrink."""

SEND_BUFFER_BYTES = 64 * 1024
"""SO_SNDBUF: kernel memory for a client that does not read; the default is up to 4 MiB."""

READ_BYTES = 8 * 1024
"""Bytes of one read: half a TLS record. What a connection holds is counted after it."""

MMAP_THRESHOLD_BYTES = 64 * 1024
"""Size from which glibc maps memory apart and returns it. Its own threshold rises with each freed block, after which
uvloop's 256 KiB for each TLS connection come from the heap, which keeps them: 30 MiB more after a flood."""

HANDSHAKE_SECONDS = 10.0
"""Time for a TLS handshake, after which an API server ends its own half, too (client-go, transport)."""

GIVEN_UP_SECONDS = 1.0
"""Least time after which a client that disconnects in its handshake counts as one that has given up: the smallest
timeoutSeconds. Probes and scans of ports disconnect at once."""

SHUTDOWN_SECONDS = 2.0
"""Timeout of the TLS shutdown."""

FIRST_REQUEST_SECONDS = 120.0
"""Time from the handshake to the first request. Go's client may keep an unused connection for 90 s."""

HEADER_BYTES = 8 * 1024
"""Request line and headers; an API server sends some 500 bytes."""

HEADERS = 100
"""Number of headers of a request: short ones take 25 times their size in memory. An API server sends 6."""

HEADER_SECONDS = 30.0
"""Time from the first byte of a request to the end of its headers: the largest timeoutSeconds of a webhook."""

BODY_BYTES = 8 * MIB
"""Size of a body. The API server accepts requests of 3 MiB (apiserver, MaxRequestBodyBytes); a review contains the
object twice, and more."""

RECEIVE_SECONDS = 30.0
"""Default time to receive a body: the largest timeoutSeconds of a webhook."""

DISCARDED_BYTES = 4 * BODY_BYTES
"""Bytes of a body beyond which its connection is closed without a response. A refused body is read, but not kept:
closing earlier would reset the connection before the client reads the response."""

KEPT_BYTES = 1024
"""Beginning of a refused body that is kept, for its uid."""

IDLE_SECONDS = 120.0
"""An idle connection is kept for longer than the 90 s of an API server (apimachinery, util/net/http.go), so that a
server never closes a connection that a client is about to use."""

UNREAD_SECONDS = 30.0
"""Timeout for a client to read its response."""

WRITE_BUFFER_BYTES = 64 * 1024
"""Bytes of unread responses beyond which the next request waits."""

HELD_BYTES = 16 * MIB
"""Headers and bodies of all connections being received or waiting for a decision. Beyond it,
connections that hold more than FREE_BYTES are not read further, and bodies that have been arriving for STALE_SECONDS
get 503."""

FREE_BYTES = 8 * 1024
"""Bytes that a connection may hold even then, so that an ordinary review does not wait behind slow senders."""

SPARE_BYTES = HELD_BYTES // 8
"""Bytes to free for connections that are not read."""

STALE_SECONDS = 1.0
"""Age of a request that is still arriving from which it may be refused where memory is short: an API server sends a
request at once."""

UNFINISHED_SECONDS = 5.0
"""Age of a handshake, of a wait for the first request, or of an unfinished request from which its connection may be
closed to make room. New connections wait in the backlog meanwhile; in a burst of 3,000, some take 2 s."""

UNUSED_SECONDS = 0.1
"""The same for a connection between two requests."""

SMALL_BYTES = 16 * 1024
"""Size up to which a body is decided in the event loop: larger ones take more than a millisecond if they consist of
node selector terms."""

SMALL_CONTAINERS = 32
"""Containers of a pod that is decided in the event loop, which takes a millisecond if all of them fall back."""

SMALL_AMOUNTS = 128
"""Amounts of resources in these containers: ten times as many as ordinary pods have."""

LARGE_BODY_BYTES = 64 * 1024
"""Size beyond which a body takes milliseconds to parse."""

PARSED_BYTES_PER_TOKEN = 110
"""Memory of parsed JSON for each of `{`, `[`, `,` and `:` outside its strings: an empty object takes 64 bytes and its
place in a list 8; a small object with one member 184 for three of them, with a string of its own 60 more (measured)."""

PARSED_BYTES = 96 * MIB
"""Estimated memory of one parsed body. A pod of 3 MiB that is all tolerations takes 70 MiB. The parser holds
the GIL, for 0.13 s at most (lists, or different keys)."""

PATIENCE_SECONDS = 0.002
"""CPU time that a decision may block the event loop: many times what an ordinary small body takes."""

CONCURRENT_DECISIONS = 1024
"""Default limit on decisions that wait for the thread: a burst of 1,000 ordinary pods is decided in a second."""

REQUEST_SECONDS = 5.0
"""Default timeout of a request: half the API server's default timeoutSeconds of 10."""

RETRY_AFTER_SECONDS = 1
"""Retry-After: an API server retries after it, at most ten times and within its timeoutSeconds (client-go,
rest/with_retry.go). A burst is over in less; without the header, or with 0, it does not retry."""

SWEEP_SECONDS = 0.25
"""Interval between checks for expired connections."""

STOP_SECONDS = 0.01
"""Polling interval while connections end."""

ABORT_SECONDS = 1.0
"""Time for aborted connections to close."""

STALLED_SECONDS = 5.0
"""Liveness fails if the event loop has been blocked for this long."""

LOG_SECONDS = 60.0
"""Minimum interval between two log lines about the same limit."""


class Limit(Enum):
    """Name of a limit in metrics and logs."""

    CONNECTIONS = "connections"
    FILES = "files"
    HANDSHAKE_TIME = "handshake-time"
    IDLE_TIME = "idle-time"
    HEADER_BYTES = "header-bytes"
    HEADER_TIME = "header-time"
    BODY_BYTES = "body-bytes"
    BODY_TIME = "body-time"
    PIPELINED = "pipelined-requests"
    UNREAD_TIME = "unread-time"
    HELD_BYTES = "held-bytes"
    DECISIONS = "decisions"
    REQUEST_TIME = "request-time"
