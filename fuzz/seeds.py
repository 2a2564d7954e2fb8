#!/usr/bin/env python3
"""Writes the seeds of fuzzing: every shape of body and message that clients send, a few bytes each.

The messages are assembled by hand, so that the seeds need only Python and do not change with our codecs.
"""

import json
import struct
from pathlib import Path

HERE = Path(__file__).parent / "seeds"

INTEGERS = {"UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q"}
REALS = {"FP32": "f", "FP64": "d", "FP16": "e"}
CONTENTS = {"BOOL": 1, "INT8": 2, "INT16": 2, "INT32": 2, "INT64": 3, "UINT8": 4, "UINT16": 4, "UINT32": 4, "UINT64": 5}


def raw(datatype, values):
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(value)) + value.encode() for value in values)
    if datatype == "BF16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    letter = {"BOOL": "?", **INTEGERS, **REALS}[datatype]
    return struct.pack(f"<{len(values)}{letter}", *values)


def values(datatype):
    if datatype == "BYTES":
        return ["a", ""]
    if datatype == "BOOL":
        return [True, False]
    return [1, 2] if datatype in INTEGERS else [0.5, -2.0]


DATATYPES = ["BOOL", *INTEGERS, *REALS, "BF16", "BYTES"]


def save(target, name, body):
    folder = HERE / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(body)


def compact(document):
    return json.dumps(document, separators=(",", ":")).encode()


def tensor(datatype, **fields):
    return {"name": "x", "datatype": datatype, "shape": [1, 2], **fields}


def rest_json():
    everything = [tensor(datatype, data=values(datatype)) for datatype in DATATYPES]
    save("rest_json", "request", compact({"inputs": everything}))
    outputs = [{"name": "y", "parameters": {"binary_data": True}}, {"name": "z"}]
    parameters = {"timeout": 5000, "priority": -1, "parm_accept": "exact", "ratio": 0.5, "flag": True}
    nested = tensor("FP32", data=[[1, None]])
    save("rest_json", "request_nested", compact({"id": "7", "parameters": parameters, "inputs": [nested], "outputs": outputs}))
    scalars = [tensor("INT64", data=[-1]) | {"shape": []}, tensor("FP32", data=[]) | {"shape": [0, 3]}]
    save("rest_json", "request_scalar_empty", compact({"inputs": scalars}))
    answer = {"id": "7", "model_name": "m", "model_version": "1", "parameters": {"parm_outcome": "exact"}}
    save("rest_json", "response", compact(answer | {"outputs": everything}))


def texts():
    save("texts", "embeddings", compact({"model": "m", "input": ["a", "gr\u00fcn", ""], "encoding_format": "base64", "dimensions": 2}))
    save("texts", "embed", compact({"inputs": "a", "normalize": False, "truncate": True}))
    save("texts", "rerank", compact({"query": "q", "texts": ["a", "b"], "raw_scores": True, "return_text": True}))
    documents = {"model": "m", "query": "q", "documents": ["a", "b"], "top_n": 1, "return_documents": True}
    save("texts", "documents", compact(documents))


def rest_binary():
    everything, blobs = [], b""
    for datatype in DATATYPES:
        blob = raw(datatype, values(datatype))
        everything.append(tensor(datatype, parameters={"binary_data_size": len(blob)}))
        blobs += blob
    request = compact({"parameters": {"binary_data_output": True}, "inputs": everything})
    response = compact({"model_name": "m", "outputs": everything})
    save("rest_binary", "request", b"\0" + request + b"\0" + blobs)
    save("rest_binary", "response", b"\0" + response + b"\0" + blobs)
    mixed = compact({"inputs": [tensor("FP32", data=[1, 2]), tensor("UINT8", parameters={"binary_data_size": 2})]})
    save("rest_binary", "mixed_stated", b"\1" + struct.pack("<H", len(mixed)) + mixed + b"\7\7")


def varint(number):
    number &= (1 << 64) - 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def contents(datatype):
    given = values(datatype)
    if datatype == "BYTES":
        return b"".join(field(8, value) for value in given)
    if datatype in CONTENTS:
        return field(CONTENTS[datatype], b"".join(varint(int(value)) for value in given))
    return field({"FP32": 6, "FP64": 7}[datatype], raw(datatype, given))


def message_tensor(datatype, typed):
    body = field(1, "x") + field(2, datatype) + field(3, varint(1) + varint(2))
    return field(5, body + (field(5, contents(datatype)) if typed else b""))


def parameter(name, choice):
    return field(4, field(1, name) + field(2, choice))


def grpc_convert():
    head = field(1, "m") + field(2, "1") + field(3, "7")
    choices = [field(1, 1), field(2, -5), field(3, "exact"), varint(4 << 3 | 1) + struct.pack("<d", 0.5), field(5, 9)]
    head += b"".join(parameter(f"p{at}", choice) for at, choice in enumerate(choices))
    typed = [datatype for datatype in DATATYPES if datatype not in ("FP16", "BF16")]
    typed_tensors = b"".join(message_tensor(datatype, True) for datatype in typed)
    bare_tensors = b"".join(message_tensor(datatype, False) for datatype in DATATYPES)
    blobs = [raw(datatype, values(datatype)) for datatype in DATATYPES]
    output = field(6, field(1, "y") + field(2, field(1, "p") + field(2, field(1, 1))))
    save("grpc_convert", "request_typed", head + typed_tensors + output)
    save("grpc_convert", "request_raw", head + bare_tensors + output + b"".join(field(7, blob) for blob in blobs))
    save("grpc_convert", "response_typed", head + typed_tensors)
    save("grpc_convert", "response_raw", head + bare_tensors + b"".join(field(6, blob) for blob in blobs))



def text(value):
    return varint(len(value)) + value.encode()


def framed(kind, head, blobs=()):
    """Returns a frame: header, the head after its length, the tensors, each part padded to eight bytes."""
    parts = [struct.pack("<I", len(head)) + head, *blobs]
    body = b"".join(part + bytes(-len(part) % 8) for part in parts)
    return struct.pack("<IB", len(body), kind) + b"prm" + struct.pack("<Q", 7) + body


def frames():
    # As DataType numbers them.
    numbered = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]
    numbered += ["FP16", "BF16", "FP32", "FP64", "BYTES"]
    choices = [b"\0", b"\1", b"\2" + struct.pack("<q", -5), b"\3" + struct.pack("<Q", 9)]
    choices += [b"\4" + struct.pack("<d", 0.5), b"\5" + text("exact")]
    parameters = varint(len(choices)) + b"".join(text(f"p{at}") + choice for at, choice in enumerate(choices))
    blobs = [raw(datatype, values(datatype)) for datatype in numbered]
    tensors = varint(len(blobs))
    for at, blob in enumerate(blobs):
        tensors += text("x") + bytes([at, 2, 1, 2]) + varint(len(blob)) + b"\0"
    named = text("m") + text("1") + text("7") + parameters + tensors
    save("frames", "request", framed(1, varint(5001) + text("00-trace-01") + named + varint(1) + text("y") + parameters, blobs))
    save("frames", "response", framed(2, bytes(2) + named + bytes(1), blobs))
    save("frames", "failure", framed(3, varint(2) + text("malformed request: no") + bytes(6)))


def copies():
    """Copies files of the project that are seeds unchanged."""
    project = Path(__file__).parent.parent
    save("onnx", "affine", (project / "tests/models/affine/1/model.onnx").read_bytes())
    save("manifest", "lenet", (project / "models/fashion-lenet/parm.toml").read_bytes())
    keys = '[server]\nkeys_file = "keys.toml"\n[frontend.admin]\ntoken = "t"\naddress = "127.0.0.1:1"\n'
    save("settings", "keys", keys.encode())


def kubernetes():
    endpoint = {"addresses": ["10.0.0.1"], "conditions": {"ready": True, "serving": True, "terminating": False}}
    endpoint |= {"nodeName": "n1", "zone": "a", "targetRef": {"kind": "Pod", "name": "w-1"}}
    ports = [{"name": "http", "port": 8000, "protocol": "TCP"}, {"name": "metrics", "port": 8002}]
    slice = {"metadata": {"name": "w-1", "resourceVersion": "7"}, "addressType": "IPv4", "endpoints": [endpoint], "ports": ports}
    six = slice | {"metadata": {"name": "w-2"}, "addressType": "IPv6", "endpoints": [{"addresses": ["fd00::1"]}]}
    empty = slice | {"metadata": {"name": "w-3"}, "endpoints": None, "ports": None}
    page = {"metadata": {"resourceVersion": "9", "continue": "x"}, "items": [slice, six, empty]}
    said = {"page": page, "modified": {"type": "MODIFIED", "object": slice}, "deleted": {"type": "DELETED", "object": six}}
    said["bookmark"] = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}
    said["error"] = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
    for name, what in said.items():
        save("kubernetes", name, json.dumps(what).encode())


def workers():
    lines = ["# a comment", "", "http://a:1  # the first", "grpc://[::1]:2", "unix:/run/parm.sock"]
    lines += ["dns+http://workers.example:8000", "srv+http://_parm._tcp.example"]
    lines += ["http://a:1 node=rack-4 zone=eu-1a", "kubernetes+http://workers.ml:http", "kubernetes+grpc://workers:8001"]
    save("workers", "every_kind", "\n".join(lines).encode())


def opaque_requests():
    def request(name, *lines, body=b""):
        save("opaque_requests", name, "\r\n".join([*lines, "", ""]).encode() + body)

    request("get", "GET /v1/models HTTP/1.1", "Host: a")
    request("post", "POST /v1/chat/completions HTTP/1.1", "Host: a", "Content-Length: 3", "parm-timeout-ms: 50", body=b"ask")
    request("chunked", "POST /predict HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", body=b"3\r\nask\r\n0\r\nx: y\r\n\r\n")
    request("both", "POST /predict HTTP/1.1", "Host: a", "Content-Length: 3", "Transfer-Encoding: chunked", body=b"0\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    request("twice", "POST /predict HTTP/1.1", "Host: a", "Content-Length: 3", "Content-Length: 4", body=b"askk")
    request("pipelined", "GET /a HTTP/1.1", "Host: a", "", "GET http://b/c?d HTTP/1.1", "Host: b")
    request("expect", "POST /predict HTTP/1.1", "Host: a", "Expect: 100-continue", "Content-Length: 3", body=b"ask")
    request("hop", "OPTIONS * HTTP/1.1", "Host: a", "Connection: close, x-mine", "X-Mine: 1", "TE: trailers", "Upgrade: h2c", "Keep-Alive: 5")
    request("old", "GET / HTTP/1.0")
    request("connect", "CONNECT b:1 HTTP/1.1", "Host: b:1")
    request("terms", "PUT /v1/x HTTP/1.1", "Host: a", "parm-priority: 256", "parm-share: x", "Cookie: a=b", "Cookie: c=d", "Content-Length: 0")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
    head = bytes.fromhex("828684") + b"\x01\x01a"
    save("opaque_requests", "http2", preface + struct.pack(">I", len(head))[1:] + b"\x01\x05\x00\x00\x00\x01" + head)
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a.B/C"), (b":authority", b"a"), (b"content-type", b"application/grpc"), (b"te", b"trailers")]
    head = b"".join(bytes([0, len(name)]) + name + bytes([len(value)]) + value for name, value in fields)
    call = preface + struct.pack(">I", len(head))[1:] + b"\x01\x04\x00\x00\x00\x01" + head
    message = b"\0\0\0\0\3abc"
    data = b"\x00\x00\x08\x00%c\x00\x00\x00\x01"
    save("opaque_requests", "call", call + data % 1 + message)
    save("opaque_requests", "open_call", call + data % 0 + message + data % 0 + message)


def opaque_answers():
    def answer(name, choice, *lines, body=b""):
        save("opaque_answers", name, bytes([choice]) + "\r\n".join([*lines, "", ""]).encode() + body)

    ok, json_type = "HTTP/1.1 200 OK", "Content-Type: application/json"
    answer("whole", 1, ok, json_type, "Content-Length: 2", body=b"{}")
    answer("until_close", 2, ok, json_type, body=b"{}")
    chunks = b'd\r\ndata: {"a":1}\r\n0\r\nx: y\r\n\r\n'
    answer("chunks", 2, ok, "Transfer-Encoding: chunked", "Trailer: x", body=chunks)
    answer("cut", 2, ok, "Transfer-Encoding: chunked", body=b'd\r\ndata: {"a":1}\r\n\r\n0\r\n\r\n')
    role = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    token = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    answer("events", 0, ok, "Content-Type: text/event-stream", body=b": ping\n\n" + role + token + b"data: [DONE]\n\n")
    answer("lines", 0, ok, "Content-Type: application/x-ndjson", body=b'{"a":1}\n{"a":2}\n')
    answer("lengths", 1, ok, json_type, "Content-Length: 2, 2", body=b"{}")
    answer("short", 2, ok, "Content-Length: 9", body=b"ask")
    answer("long", 3, ok, "Content-Length: 1", body=b"ask")
    answer("both", 3, ok, "Content-Length: 3", "Transfer-Encoding: chunked", body=b"0\r\n\r\n")
    answer("busy", 0, "HTTP/1.1 503 Service Unavailable", "Retry-After: 1", "Content-Length: 4", body=b"busy")
    answer("broken", 2, "HTTP/1.1 500 Internal Server Error", json_type, "Content-Length: 14", body=b'{"error":"no"}')
    answer("many", 0, "HTTP/1.1 429 Too Many Requests", "Retry-After: 1", "Content-Length: 0")
    answer("continue", 3, "HTTP/1.1 100 Continue", "", ok, "Content-Length: 0")
    answer("upgrade", 1, "HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: upgrade")
    answer("none", 1, "HTTP/1.1 204 No Content", "Content-Length: 5")
    answer("unchanged", 1, "HTTP/1.1 304 Not Modified", "ETag: 1", "Connection: x-mine", "x-mine: 1")
    answer("zip", 0, ok, "Content-Type: text/event-stream", "Content-Encoding: gzip", body=b"\x1f\x8b")
    save("opaque_answers", "garbage", b"\x00\x16\x03\x01\x02")


frames()
opaque_requests()
opaque_answers()
copies()
kubernetes()
workers()
rest_json()
texts()
rest_binary()
grpc_convert()
