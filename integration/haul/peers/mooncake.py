"""Mooncake's transfer engine over tcp, DRAM to DRAM. usage: mooncake.py LOAD."""
import sys, time
from mooncake.engine import TransferEngine
from load import Load, pair, serve, target_loop

load = Load(sys.argv[1])
# Pages a call: one call with all of a load's 8192 pages of 32 KiB is refused ("lane queue full").
BATCH = max(1, min(1024, (16 << 20) // load.page))


def engine(a):
    e = TransferEngine()
    for what, code in (("initialize", e.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")), ("register", e.register_memory(a.ctypes.data, load.size))):
        if code != 0:
            raise SystemExit("%s: %d" % (what, code))
    return e


def target(pipe):
    a = load.memory(load.side(False))
    e = engine(a)
    pipe.send(("127.0.0.1:%d" % e.get_rpc_port()).encode())
    pipe.send(str(a.ctypes.data).encode())
    target_loop(pipe, load, a)


pipe = pair(target)
a = load.memory(load.side(True))
e = engine(a)
session, base = pipe.recv().decode(), int(pipe.recv())
local, remote = load.addresses(a.ctypes.data, load.side(True)), load.addresses(base, load.side(False))
move = e.batch_transfer_sync_read if load.op == "READ" else e.batch_transfer_sync_write


def run():
    start = time.perf_counter()
    for i in range(0, load.pages, BATCH):
        n = len(local[i : i + BATCH])
        code = move(session, local[i : i + BATCH], remote[i : i + BATCH], [load.page] * n)
        if code != 0:
            raise SystemExit("a transfer of %d pages from %d: %d" % (n, i, code))
    return time.perf_counter() - start


serve(pipe, load, a, run)
