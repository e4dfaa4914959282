"""Writes vectors.json: page and logits digests by the formulas of doc.go, independent of the Go code."""
import hashlib
import json
import struct

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def words(prefix, n):
    out = []
    for counter in range((n + 7) // 8):
        out += struct.unpack("<8I", hashlib.sha256(prefix + struct.pack("<I", counter)).digest())
    return out[:n]


def nh(w, keys, lane):
    return sum(((w[i] + keys[i + 2 * lane]) & M32) * ((w[i + 1] + keys[i + 1 + 2 * lane]) & M32)
               for i in range(0, len(w), 2)) & M64


def lane_key(key, lane):
    return key if lane == 0 else (((key << 32) | (key >> 32)) & M64) | 1


def row_keys(flat):
    return [(flat[i] | flat[i + 1] << 32) | 1 for i in range(0, len(flat), 2)]


def digest(parts, nh_keys, keys):
    """parts: (index, words)."""
    return b"".join(
        struct.pack("<Q", sum(lane_key(keys[i], lane) * nh(w, nh_keys, lane) for i, w in parts) & M64) for lane in (0, 1)
    ).hex()


def pattern(seed, n):
    """n bytes: SHA-256 of seed and a counter."""
    out = b""
    for counter in range((n + 31) // 32):
        out += hashlib.sha256(struct.pack("<II", seed, counter)).digest()
    return out[:n]


def page(name, layers, heads, dim, elem, tokens, seed):
    layout, revision = hashlib.sha256(b"layout").digest(), hashlib.sha256(b"revision").digest()
    w = dim * elem // 4
    flat = words(b"leasehold/pagesum/v1" + layout + revision, w + 2 + 2 * 64 * layers * 2 * heads)
    keys, parts = row_keys(flat[w + 2:]), []
    for t in tokens:
        for layer in range(layers):
            for kv in range(2):
                for head in range(heads):
                    row = ((t * layers + layer) * 2 + kv) * heads + head
                    parts.append((row, struct.unpack("<%dI" % w, pattern(seed + row, dim * elem))))
    return {"name": name, "layers": layers, "kv_heads": heads, "head_dim": dim, "elem_bytes": elem, "tokens": tokens,
            "seed": seed, "digest": digest(parts, flat[:w + 2], keys)}


def logits(name, n, seed):
    blocks = (n + 1023) // 1024
    flat = words(b"leasehold/logits/v1", 1026 + 2 * blocks)
    row = struct.unpack("<%dI" % n, pattern(seed, 4 * n)) + (0,) * (blocks * 1024 - n)
    parts = [(b, row[1024 * b:1024 * (b + 1)]) for b in range(blocks)]
    return {"name": name, "n": n, "seed": seed, "digest": digest(parts, flat[:1026], row_keys(flat[1026:]))}


pages = [
    page("one token of the smallest row", 1, 1, 4, 2, [0], 1),
    page("the last token only", 2, 3, 64, 2, [63], 2),
    page("seven tokens of three layers", 3, 2, 64, 2, list(range(7)), 3),
    page("a full page", 2, 1, 32, 2, list(range(64)), 4),
    page("a full page of f32", 1, 2, 16, 4, list(range(64)), 5),
    page("a page but for its last token", 1, 1, 8, 4, list(range(63)), 6),
]
rows = [logits("one logit", 1, 7), logits("a block", 1024, 8), logits("a block and one", 1025, 9), logits("a vocabulary", 49152, 10)]
json.dump({"pages": pages, "logits": rows}, open("vectors.json", "w"), indent=1)
