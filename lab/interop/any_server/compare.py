"""Compares answers of a server with those of a frontend in front of it: status, headers and body, byte by byte."""

import dataclasses
import http.client

# Headers of a connection (RFC 9110, section 7.6.1), which each side of a proxy has of its own.
HOP_BY_HOP = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
              "upgrade", "proxy-connection"}
OUTCOME = "parm-outcome"
ADDED = {OUTCOME, "parm-sent"}
PATIENCE = 30.0


@dataclasses.dataclass
class Ask:
    """A request."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict = dataclasses.field(default_factory=dict)

    def __str__(self):
        return f"{self.method} {self.path}"


@dataclasses.dataclass
class Answer:
    status: int
    headers: list
    body: bytes

    def end_to_end(self):
        """Headers without those of the connection and those that the frontend adds; a chunked body has no length."""
        return sorted((name, value) for name, value in self.headers
                      if name not in HOP_BY_HOP and name not in ADDED and name != "content-length")

    def header(self, name):
        return next((value for key, value in self.headers if key == name), None)


def send(address, ask):
    """Sends a request on a new connection."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    try:
        connection.request(ask.method, ask.path, ask.body, ask.headers)
        response = connection.getresponse()
        headers = [(name.lower(), value) for name, value in response.getheaders()]
        return Answer(response.status, headers, response.read())
    finally:
        connection.close()


def same(frontend, server, ask):
    """Compares an answer through the frontend with the server's own.

    Headers that differ between two answers of the server itself, such as the date, need only be present.
    """
    own, again, passed = send(server, ask), send(server, ask), send(frontend, ask)
    assert (own.status, own.body) == (again.status, again.body), f"{ask}: the server's own answers differ"
    assert passed.status == own.status, f"{ask}: status {passed.status}, want {own.status}: {passed.body[:300]}"
    assert passed.body == own.body, f"{ask}: body {passed.body[:300]}, want {own.body[:300]}"
    first, second, third = own.end_to_end(), again.end_to_end(), passed.end_to_end()
    varying = {name for name, _ in set(first) ^ set(second)} | {"date"}
    fixed = lambda headers: [(name, None if name in varying else value) for name, value in headers]
    assert fixed(third) == fixed(first), f"{ask}: headers {third}, want {first}"
    stated = own.header("content-length")
    assert stated is None or passed.header("content-length") == stated, f"{ask}: length {passed.header('content-length')}"
    return passed


def all_same(name, frontend, server, asks):
    outcomes = [same(frontend, server, ask).header(OUTCOME) for ask in asks]
    length = len(asks)
    assert all(outcome in ("exact", "hedged", None) for outcome in outcomes), outcomes
    print(f"  ok  {name}: {length} answers are the server's own")
