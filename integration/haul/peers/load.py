"""What the peers' two processes share: the load's memory and pattern, and the lines that the bench talks in."""
import json, os, socket, struct, sys
import numpy as np

PATTERN = np.uint64(0x9E3779B97F4A7C15)


class Load:
    """A load as a file of the bench describes it: page size, and each side's page of every place."""

    def __init__(self, spec):
        with open(spec) as f:
            s = json.load(f)
        self.op, self.page = s["op"], s["page_bytes"]
        self.orders = {"source": s["source"], "destination": s["destination"]}
        self.pages = len(s["source"])
        self.size = self.pages * self.page

    def side(self, initiator):
        """A READ's initiator is the destination, a WRITE's the source."""
        return "destination" if (self.op == "READ") == initiator else "source"

    def memory(self, side):
        a = np.zeros(self.size, dtype=np.uint8)
        a[:] = 0  # touched
        if side == "source":
            a.view(np.uint64).reshape(self.pages, -1)[self.orders[side]] = self.pattern()
        return a

    def pattern(self):
        return (np.arange(1, self.size // 8 + 1, dtype=np.uint64) * PATTERN).reshape(self.pages, -1)

    def right(self, a):
        return bool((a.view(np.uint64).reshape(self.pages, -1)[self.orders["destination"]] == self.pattern()).all())

    def addresses(self, base, side):
        return [base + p * self.page for p in self.orders[side]]


class Pipe:
    """Messages of bytes over a socket between the two processes."""

    def __init__(self, s):
        self.s = s

    def send(self, b):
        self.s.sendall(struct.pack("!Q", len(b)) + b)

    def recv(self):
        return self._exactly(struct.unpack("!Q", self._exactly(8))[0])

    def _exactly(self, n):
        b = b""
        while len(b) < n:
            c = self.s.recv(n - len(b))
            if not c:
                raise EOFError("the other process is gone")
            b += c
        return b


def pair(target):
    """Forks the target's process and returns the initiator's pipe to it."""
    here, there = socket.socketpair()
    if os.fork() == 0:
        here.close()
        try:
            target(Pipe(there))
        except EOFError:
            pass
        os._exit(0)
    there.close()
    return Pipe(here)


def target_loop(pipe, load, a):
    """Clears and checks the target's memory as it is told."""
    while True:
        what = pipe.recv()
        if what == b"clear" and load.side(False) == "destination":
            a[:] = 0
        ok = load.side(False) != "destination" or what != b"check" or load.right(a)
        pipe.send(b"ok" if ok else b"wrong")


def serve(pipe, load, a, run):
    """Answers the bench's lines until they end; run() returns the seconds that one run took."""
    print("ready", flush=True)
    for line in sys.stdin:
        what = line.strip()
        if what == "run":
            print("ran %.9f" % run(), flush=True)
            continue
        if what == "clear" and load.side(True) == "destination":
            a[:] = 0
        pipe.send(what.encode())
        ok = pipe.recv() == b"ok"
        if what == "check" and load.side(True) == "destination":
            ok = load.right(a)
        print("did %s" % ("ok" if ok else "wrong"), flush=True)
    os._exit(0)
