"""Tests of the Python module with the real program: `PARM_BINARY=... PYTHONPATH=python pytest python/tests`."""

import os
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
import warnings

import numpy
import pytest

import parm
from parm import _server

FREE = {"http": "127.0.0.1:0"}
ROWS = numpy.arange(8, dtype=numpy.float32).reshape(2, 4)


def scaled(x):
    """A model: twice the input, and the sum of each row."""
    if x.min() < 0:
        raise ValueError("negative")
    return {"twice": 2 * x, "sum": x.sum(axis=1, keepdims=True)}


def pids(service):
    """The process of each copy that has answered."""
    lines = [line for line in service.log().splitlines() if "replica answers" in line]
    return [int(line.split("pid=")[1].split()[0]) for line in lines]


def test_function_is_served_by_copies():
    with parm.serve(scaled, replicas=3, **FREE) as service:
        found = service(ROWS)
        assert sorted(found) == ["sum", "twice"]
        numpy.testing.assert_array_equal(found["twice"], 2 * ROWS)
        numpy.testing.assert_array_equal(found["sum"], [[6], [22]])
        assert found["twice"].dtype == numpy.float32
        copies = pids(service)
        assert len(copies) == 3
        os.kill(copies[0], signal.SIGKILL)
        for _ in range(50):
            numpy.testing.assert_array_equal(service(ROWS)["twice"], 2 * ROWS)
    for pid in copies:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_example_makes_a_model_whose_requests_parm_reads():
    with parm.serve(scaled, replicas=2, example=ROWS, name="mine", **FREE) as service:
        numpy.testing.assert_array_equal(service(ROWS[:1])["sum"], [[6]])
        told = urllib.request.urlopen(f"{service.url}/v2/models/mine").read().decode()
        assert '"twice"' in told and "[-1,4]" in told.replace(" ", "")
        assert service(ROWS.astype("f8"))["twice"].dtype == numpy.float32, "cast to the example's type"
        with pytest.raises(parm.ParmError, match=r"^input 'x' has shape \[1, 5\]"):
            service(numpy.ones((1, 5)))
        # No schedule, which a busy machine would miss.
        report = parm.load(service, "mine", scenario="single-stream", seconds=1, warm_up=0, input=ROWS)
        assert report["sent"] > 0 and not report["failures"], report
        assert "<svg" in report._repr_html_() and "p99" in report._repr_html_()
        with pytest.raises(parm.ParmError, match="p50<=0.001ms|invalid") as raised:
            parm.load(service, "mine", rate=50, seconds=1, warm_up=0, require=["p50<=0.001ms"])
        assert raised.value.report["sent"] > 0


def test_load_on_unknown_shapes_is_refused_before_it_is_sent():
    with parm.serve(scaled, replicas=1, **FREE) as service:
        for options in [{}, {"input": ROWS}]:
            with pytest.raises(parm.ParmError, match="shapes are unknown.*example=rows"):
                parm.load(service, "scaled", **options)


class Scaler:
    def __init__(self, factor):
        self.factor = factor

    def predict(self, x):
        return self.factor * x


@pytest.mark.parametrize("function", [lambda x: 3 * x, Scaler(3).predict])
def test_function_that_cannot_be_imported_is_sent_by_cloudpickle(function, monkeypatch):
    pytest.importorskip("cloudpickle")
    with parm.serve(function, **FREE) as service:
        numpy.testing.assert_array_equal(service(ROWS), 3 * ROWS)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(parm.ParmError, match="pip install cloudpickle, or give a plain function of a file"):
        parm.serve(function, **FREE)


async def application(scope, receive, send):
    pass


@pytest.mark.parametrize("target", [None, 3, Scaler(3), application])
def test_what_cannot_be_served_is_refused_with_what_can(target):
    with pytest.raises(parm.ParmError, match="cannot serve a .*: give a plain function .*app:app"):
        parm.serve(target, **FREE)


def test_error_of_the_function_reaches_the_caller():
    with parm.serve(scaled, **FREE) as service:
        with pytest.raises(parm.ParmError, match="negative"):
            service(-ROWS)
        assert "ValueError: negative" in service.log(), "the copy's log has the traceback"


def test_failed_start_says_what_the_copy_said():
    with pytest.raises(parm.ParmError, match="no module of this name|No module named 'nosuchmodule'"):
        parm.serve([sys.executable, "-c", "import nosuchmodule; '{port}'"], **FREE)


def test_command_may_be_any_server():
    words = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "{port}"]
    with parm.serve(words, **FREE) as service:
        assert urllib.request.urlopen(service.url).status == 200
        with pytest.raises(parm.ParmError, match="only a served function"):
            service(ROWS)


def test_asgi_application(tmp_path, monkeypatch):
    pytest.importorskip("uvicorn")
    (tmp_path / "app.py").write_text(
        textwrap.dedent(
            """
            async def app(scope, receive, send):
                if scope["type"] == "http":
                    await send({"type": "http.response.start", "status": 200, "headers": []})
                    await send({"type": "http.response.body", "body": b"hello"})
            """
        )
    )
    monkeypatch.chdir(tmp_path)
    with parm.serve("app:app", replicas=2, **FREE) as service:
        assert urllib.request.urlopen(service.url).read() == b"hello"


def test_script_without_a_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import parm\ndef f(x): return x\nparm.serve(f, http='127.0.0.1:0').stop()\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode != 0 and "__main__" in done.stderr
    script.write_text(
        "import numpy, parm\ndef f(x): return x + 1\n"
        "if __name__ == '__main__':\n"
        "    with parm.serve(f, http='127.0.0.1:0') as service:\n        print(service(numpy.array([1])))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == "[2]", done.stderr
    script.write_text(
        "import parm\nif __name__ == '__main__':\n    def f(x): return x\n    parm.serve(f, http='127.0.0.1:0').stop()\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode != 0 and "'f' is not found when a copy imports" in done.stderr, done.stderr


def test_script_without_a_file_is_sent_by_cloudpickle():
    pytest.importorskip("cloudpickle")
    script = (
        "import numpy, parm\ndef f(x): return x + 1\n"
        "with parm.serve(f, http='127.0.0.1:0') as service: print(service(numpy.array([1])))\n"
    )
    done = subprocess.run([sys.executable], input=script, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == "[2]", done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_copies_end_with_a_python_that_is_killed(number, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import parm, time\ndef f(x): return x\nif __name__ == '__main__':\n"
        "    service = parm.serve(f, http='127.0.0.1:0')\n    print(service.url, flush=True)\n    time.sleep(100)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as caller:
        url = caller.stdout.readline().strip()
        assert urllib.request.urlopen(f"{url}/v2/models/f").status == 200
        caller.send_signal(number)
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/v2/models/f").close()
        except OSError:
            return
        time.sleep(0.1)
    raise AssertionError("parm still listens 30 s after its caller was killed")


def test_simulation_is_a_report_with_a_chart():
    report = parm.simulate(queries=2000, scenario="A", load=0.5, policy=["equal", "hedge"])
    assert [row["policy"] for row in report["rows"]] == ["equal", "hedge"]
    drawn = report._repr_html_()
    assert drawn.count("<rect") == 4 and "hedge" in drawn


def test_unknown_flag_is_an_error():
    with pytest.raises(parm.ParmError, match="--nonsense"):
        parm.simulate(nonsense=1)


def test_stand_in_of_a_fitted_estimator(tmp_path):
    pytest.importorskip("skl2onnx")
    network = pytest.importorskip("sklearn.neural_network")
    generator = numpy.random.default_rng(1)
    rows = generator.normal(size=(400, 8)).astype(numpy.float32)
    labels = (rows[:, 0] + rows[:, 1] > 0).astype(numpy.int64)
    warnings.simplefilter("ignore")  # it need not have learnt everything
    model = network.MLPClassifier((256, 256), max_iter=20, random_state=1).fit(rows, labels)
    report = parm.stand_in(model, rows, name="signs", models=str(tmp_path / "models"), measure=1, cost=0.9)
    assert (report["candidates"] or report["refused"]) and "<svg" in report._repr_html_()
    assert ("hedge" in report["advice"]) == (report["chosen"] is None), report
    if report["chosen"]:
        assert (tmp_path / "models" / "signs" / "parm.toml").exists()


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("type_", ["f4", "f8", "f2", "i8", "u1", "?", "i4"])
def test_arrays_pass_unchanged(type_, binary):
    import json

    array = numpy.arange(6).reshape(2, 3).astype(type_)
    head, rest = _server.encode([("x", array)], binary)
    text = json.dumps(head).encode()
    read = _server.decode(text + rest, str(len(text)))[1]["x"]
    numpy.testing.assert_array_equal(read, array)
    assert read.dtype == array.dtype and read.shape == array.shape


def test_strings_in_both_forms_are_read():
    array = numpy.array(["a", "é"])
    head, rest = _server.encode([("x", array)], True)
    assert head["inputs"][0]["data"] == ["a", "é"] and rest == b""
    body = b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 11}}]}'
    read = _server.decode(body + b"\x01\0\0\0a\x02\0\0\0\xc3\xa9", str(len(body)))[1]["x"]
    assert list(read) == [b"a", "é".encode()]
