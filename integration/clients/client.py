"""Asks through OpenAI's Python client, whole and streamed, and prints what it understood as one JSON object."""
import json
import sys

from openai import BadRequestError, NotFoundError, OpenAI, AuthenticationError

url, key, model = sys.argv[1:4]
client = OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
ask = dict(model=model, messages=[{"role": "user", "content": "Why is the sky blue?"}], temperature=0, max_tokens=24)

raw = client.chat.completions.with_raw_response.create(**ask)


def receipts(body):
    """The receipts that came along: the clients know nothing of them, and keep them as they keep any unknown field."""
    return [c.model_extra["leasehold_receipt"] for c in body.choices if "leasehold_receipt" in (c.model_extra or {})]


whole = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2)
chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
text = client.completions.create(model=model, prompt="The sea is", temperature=0, max_tokens=8)
text_chunks = list(client.completions.create(model=model, prompt="The sea is", temperature=0, max_tokens=8, stream=True))
two = client.chat.completions.create(**{**ask, "temperature": 1.0}, n=2, seed=5)


def refused(kind, f):
    try:
        f()
    except kind as e:
        return {"status": e.status_code, "code": e.code, "param": e.param, "type": e.type}
    return None


print(json.dumps({
    "models": [m.id for m in client.models.list().data],
    "whole": whole.choices[0].message.content,
    "finish": whole.choices[0].finish_reason,
    "role": whole.choices[0].message.role,
    "usage": [whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens],
    "logprobs": len(whole.choices[0].logprobs.content),
    "top": len(whole.choices[0].logprobs.content[0].top_logprobs),
    "streamed": "".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
    "stream_role": chunks[0].choices[0].delta.role,
    "stream_finish": [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason],
    "stream_usage": [c.usage.completion_tokens for c in chunks if c.usage],
    "text": text.choices[0].text,
    "text_streamed": "".join(c.choices[0].text for c in text_chunks if c.choices),
    "two": [c.index for c in two.choices],
    "two_texts": [c.message.content for c in two.choices],
    "receipts": [len(receipts(b)) for b in (whole, text, two)] + [sum(len(receipts(c)) for c in cs) for cs in (chunks, text_chunks)],
    "receipt": receipts(raw.parse())[0],
    "receipt_id": raw.headers["x-leasehold-receipt"],
    "bad_tools": refused(BadRequestError, lambda: client.chat.completions.create(**ask, tools=[{"type": "function", "function": {"name": "f"}}])),
    "bad_model": refused(NotFoundError, lambda: client.chat.completions.create(**{**ask, "model": "gpt-99"})),
    "bad_key": refused(AuthenticationError, lambda: OpenAI(base_url=url + "/v1", api_key="lh-wrong").chat.completions.create(**ask)),
}))
