"""Unmodified client libraries through a frontend: openai, litellm, langchain-openai and huggingface_hub.

Each call is made to the server itself too, and the results are compared as the library returns them.
"""

import asyncio
import importlib.metadata
import os

# Neither library may fetch anything: a price list, or traces.
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", HF_HUB_DISABLE_TELEMETRY="1", LANGSMITH_TRACING="false", NO_PROXY="*")

import httpx
import openai

from fleet import until
from own import seen, total

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How are you?"}]


def version(package):
    return f"{package} {importlib.metadata.version(package)}"


def client(address, **options):
    return openai.OpenAI(base_url=f"http://{address}/v1", api_key="sk-recipe", **{"max_retries": 0, "timeout": 30, **options})


def plain(value):
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value.model_dump()


def openai_calls(client):
    """Results of the calls that people make."""
    chat = lambda **more: client.chat.completions.create(model="m", messages=MESSAGES, **more)
    yield plain(chat())
    yield plain(list(chat(stream=True)))
    yield plain(list(chat(stream=True, stream_options={"include_usage": True})))
    with client.chat.completions.stream(model="m", messages=MESSAGES) as stream:
        stream.until_done()
        yield plain(stream.get_final_completion())
    yield plain(client.completions.create(model="m", prompt="abc"))
    yield plain(client.embeddings.create(model="m", input=["a", "b"]))
    yield plain(client.embeddings.create(model="m", input="a", encoding_format="float"))
    yield plain(list(client.models.list()))
    yield plain(client.audio.transcriptions.create(model="m", file=("a.wav", bytes(range(256)) * 4096)))
    yield plain(client.responses.create(model="m", input="hello"))


def openai_errors(client):
    """The error of each status as the library shows it."""
    classes = {400: openai.BadRequestError, 401: openai.AuthenticationError, 403: openai.PermissionDeniedError,
               404: openai.NotFoundError, 409: openai.ConflictError, 422: openai.UnprocessableEntityError,
               429: openai.RateLimitError, 500: openai.InternalServerError, 503: openai.InternalServerError}
    for status, kind in classes.items():
        for stream in (False, True):
            try:
                client.chat.completions.create(model=f"error-{status}", messages=MESSAGES, stream=stream)
                raise AssertionError(f"{status} was not an error")
            except kind as error:
                assert type(error) is kind, error
                yield error.status_code, error.code, error.type, error.param, str(error)


def openai_headers(parm):
    answer = client(parm.http).chat.completions.with_raw_response.create(model="m", messages=MESSAGES)
    assert answer.headers["parm-outcome"] in ("exact", "hedged"), answer.headers
    answer = client(parm.http).chat.completions.with_raw_response.create(
        model="m", messages=MESSAGES, extra_headers={"parm-timeout-ms": "5000", "parm-priority": "1"})
    assert answer.headers["parm-outcome"] in ("exact", "hedged"), answer.headers


def openai_retries_itself(parm, fleet):
    """The library sends again by itself after 429 with Retry-After, as without parm."""
    before = total(fleet, "/v1/chat/completions")
    try:
        client(parm.http, max_retries=1).chat.completions.create(model="error-429-1", messages=MESSAGES)
        raise AssertionError("429 was not an error")
    except openai.RateLimitError as error:
        assert error.response.headers["retry-after"] == "1", error.response.headers
    assert total(fleet, "/v1/chat/completions") >= before + 2


def ends_everywhere(what, fleet, before):
    """Waits until a replica has seen a disconnect and none runs anything: copies of late requests end as well."""
    ended = lambda: total(fleet, "gone") > before and not any(seen(address)["running"] for address in fleet.addresses)
    until(f"{what} ends at all servers", ended, 10)


def openai_timeouts(parm, fleet):
    """A client's own timeout closes its request everywhere; parm's timeout is an answer."""
    before = total(fleet, "gone")
    try:
        client(parm.http, timeout=0.5).chat.completions.create(model="slow-20000", messages=MESSAGES)
        raise AssertionError("it did not time out")
    except openai.APITimeoutError:
        pass
    ends_everywhere("a call that timed out at its client", fleet, before)
    before = total(fleet, "gone")
    try:
        client(parm.http).chat.completions.create(model="slow-20000", messages=MESSAGES, extra_headers={"parm-timeout-ms": "300"})
        raise AssertionError("parm's timeout did not end it")
    except openai.APIStatusError as error:
        assert (error.status_code, error.code) == (504, "PARM-0033") and "parm-timeout-ms" in str(error), error
    ends_everywhere("a call that timed out at parm", fleet, before)


def openai_cancellation(parm, fleet):
    """Closing a stream ends it at the server."""
    before = total(fleet, "gone")
    stream = client(parm.http).chat.completions.create(model="endless", messages=MESSAGES, stream=True)
    for _ in range(20):
        next(stream)
    running = lambda: sum(seen(address)["running"] for address in fleet.addresses)
    until("one server sends the stream", lambda: running() == 1, 10)
    stream.close()
    ends_everywhere("a stream that was closed", fleet, before)
    before = total(fleet, "gone")

    async def cancelled():
        api = openai.AsyncOpenAI(base_url=f"http://{parm.http}/v1", api_key="sk-recipe", max_retries=0)
        call = asyncio.ensure_future(api.chat.completions.create(model="slow-20000", messages=MESSAGES))
        await asyncio.sleep(0.5)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await api.close()

    asyncio.run(cancelled())
    ends_everywhere("a call that was cancelled", fleet, before)


def check_openai(parm, fleet):
    direct, through = client(fleet.addresses[0]), client(parm.http)
    own, passed = list(openai_calls(direct)), list(openai_calls(through))
    assert own == passed, [pair for pair in zip(own, passed) if pair[0] != pair[1]][:1]
    own, passed = list(openai_errors(direct)), list(openai_errors(through))
    assert own == passed, [pair for pair in zip(own, passed) if pair[0] != pair[1]][:1]
    openai_headers(parm)
    openai_retries_itself(parm, fleet)
    openai_timeouts(parm, fleet)
    openai_cancellation(parm, fleet)
    print(f"  ok  {version('openai')}: chat, streams, embeddings, files, errors, timeouts, cancellation")


def check_litellm(parm, fleet):
    import litellm

    litellm.telemetry = False
    litellm.suppress_debug_info = True

    def calls(address):
        options = {"api_base": f"http://{address}/v1", "api_key": "sk-recipe", "timeout": 30, "max_retries": 0}
        chat = litellm.completion(model="openai/m", messages=MESSAGES, **options)
        yield chat.choices[0].message.content, chat.id, chat.usage.total_tokens
        chunks = litellm.completion(model="openai/m", messages=MESSAGES, stream=True, **options)
        yield [chunk.choices[0].delta.content for chunk in chunks]
        yield [row["embedding"] for row in litellm.embedding(model="openai/m", input=["a", "b"], **options).data]
        for model, kind in (("error-429", litellm.RateLimitError), ("error-401", litellm.AuthenticationError),
                            ("error-400", litellm.BadRequestError), ("error-500", litellm.InternalServerError)):
            try:
                litellm.completion(model=f"openai/{model}", messages=MESSAGES, **options)
                raise AssertionError(f"{model} was not an error")
            except kind as error:
                yield type(error), error.status_code, str(error)

    own, passed = list(calls(fleet.addresses[0])), list(calls(parm.http))
    assert own == passed, [pair for pair in zip(own, passed) if pair[0] != pair[1]][:1]
    print(f"  ok  {version('litellm')}: chat, streamed chat, embeddings, errors")


def check_langchain(parm, fleet):
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    def calls(address):
        options = {"base_url": f"http://{address}/v1", "api_key": "sk-recipe", "max_retries": 0, "timeout": 30}
        chat = ChatOpenAI(model="m", **options)
        messages = [(message["role"], message["content"]) for message in MESSAGES]
        yield chat.invoke(messages).content
        yield [chunk.content for chunk in chat.stream(messages)]
        yield [answer.content for answer in chat.batch([messages] * 8)]
        yield asyncio.run(chat.ainvoke(messages)).content
        # Its check of lengths would fetch a tokenizer.
        embeddings = OpenAIEmbeddings(model="m", check_embedding_ctx_length=False, **options)
        yield embeddings.embed_documents(["a", "b"])

    own, passed = list(calls(fleet.addresses[0])), list(calls(parm.http))
    assert own == passed, [pair for pair in zip(own, passed) if pair[0] != pair[1]][:1]
    print(f"  ok  {version('langchain-openai')}: chat, stream, batch, async, embeddings")


def check_hub(parm, fleet):
    from huggingface_hub import InferenceClient

    def calls(address):
        yield InferenceClient(model=f"http://{address}/embed", timeout=30).feature_extraction("a").tolist()
        # TEI's root is an alias, to which the client posts when it is given the server's address only.
        yield InferenceClient(model=f"http://{address}", timeout=30).feature_extraction("a").tolist()
        api = InferenceClient(base_url=f"http://{address}", timeout=30)
        yield api.chat_completion(MESSAGES, model="m").choices[0].message.content
        yield [chunk.choices[0].delta.content for chunk in api.chat_completion(MESSAGES, model="m", stream=True)]
        ranked = httpx.post(f"http://{address}/rerank", json={"query": "q", "texts": ["a", "b"]}, timeout=30)
        yield ranked.status_code, ranked.json()

    own, passed = list(calls(fleet.addresses[0])), list(calls(parm.http))
    assert own == passed, [pair for pair in zip(own, passed) if pair[0] != pair[1]][:1]
    print(f"  ok  {version('huggingface_hub')} InferenceClient: TEI's routes, chat, streamed chat")


def check(parm, fleet):
    for address in fleet.addresses:
        seen(address)
    check_openai(parm, fleet)
    check_litellm(parm, fleet)
    check_langchain(parm, fleet)
    check_hub(parm, fleet)
