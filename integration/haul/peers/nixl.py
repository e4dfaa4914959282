"""NIXL with its UCX back end, DRAM to DRAM. usage: nixl.py LOAD. Transports are UCX's to choose, by UCX_TLS."""
import sys, time
import numpy as np
from nixl._api import nixl_agent, nixl_agent_config
from load import Load, pair, serve, target_loop

load = Load(sys.argv[1])


def agent(name, a):
    ag = nixl_agent(name, nixl_agent_config(enable_prog_thread=True, num_threads=0, backends=["UCX"]))
    return ag, ag.register_memory([(a.ctypes.data, load.size, 0, "")], "DRAM")


def target(pipe):
    a = load.memory(load.side(False))
    ag, _ = agent("target", a)
    pipe.send(ag.get_agent_metadata())
    pipe.send(str(a.ctypes.data).encode())
    ag.add_remote_agent(pipe.recv())
    target_loop(pipe, load, a)


pipe = pair(target)
a = load.memory(load.side(True))
ag, _ = agent("initiator", a)
metadata, base = pipe.recv(), int(pipe.recv())
name = ag.add_remote_agent(metadata)
pipe.send(ag.get_agent_metadata())
local = [(p, load.page, 0) for p in load.addresses(a.ctypes.data, load.side(True))]
remote = [(p, load.page, 0) for p in load.addresses(base, load.side(False))]
lh, rh = ag.prep_xfer_dlist("NIXL_INIT_AGENT", local, "DRAM"), ag.prep_xfer_dlist(name, remote, "DRAM")
every = np.arange(load.pages, dtype=np.int32)


def run():
    h = ag.make_prepped_xfer(load.op, lh, every, rh, every, b"")
    start = time.perf_counter()
    state = ag.transfer(h)
    while state == "PROC":
        state = ag.check_xfer_state(h)
    took = time.perf_counter() - start
    ag.release_xfer_handle(h)
    if state != "DONE":
        raise SystemExit("the transfer ended as " + state)
    return took


serve(pipe, load, a, run)
