package haul

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"leasehold.dev/protos/errs"
)

//go:embed peers/*.py
var scripts embed.FS

// Peer is a program of others that moves pages, with the Python that has it.
type Peer struct {
	Script string // in peers, without its ending
	Python string
	Env    []string
}

// Nixl is NIXL's back end UCX, over the transports named (UCX_TLS); "": those that it chooses.
func Nixl(dir, transports string) Peer {
	p := Peer{Script: "nixl", Python: filepath.Join(dir, "nixl", "bin", "python"), Env: []string{"NIXL_LOG_LEVEL=WARN", "UCX_NET_DEVICES=lo"}}
	if transports != "" {
		p.Env = append(p.Env, "UCX_TLS="+transports)
	}
	return p
}

// Mooncake is Mooncake's transfer engine over tcp.
func Mooncake(dir string) Peer {
	return Peer{Script: "mooncake", Python: filepath.Join(dir, "mooncake", "bin", "python"),
		Env: []string{"MC_LOG_LEVEL=ERROR", "MC_TCP_BIND_ADDRESS=127.0.0.1"}}
}

// Maker of a row with the peer's operation: READ, where the destination's process asks, or WRITE, where the source's does.
func (p Peer) Maker(row, op string) Maker {
	return Maker{Name: row, Checked: "content", Open: func(ctx context.Context, l Load) (Way, error) { return p.open(ctx, l, op) }}
}

type peer struct {
	*child
	dir string
}

func (p Peer) open(ctx context.Context, l Load, op string) (_ Way, err error) {
	if _, err := os.Stat(p.Python); err != nil {
		return nil, errs.New(errs.NotFound, "%s is not installed: %w", p.Script, err)
	}
	w := &peer{}
	if w.dir, err = os.MkdirTemp("", "leasehold-haul"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = w.Close()
		}
	}()
	for _, name := range []string{"load", p.Script} {
		b, err := scripts.ReadFile("peers/" + name + ".py")
		if err != nil {
			return nil, err
		}
		if name == p.Script { // a name of its own, or it would hide the peer's module
			name = "main"
		}
		if err := os.WriteFile(filepath.Join(w.dir, name+".py"), b, 0o600); err != nil {
			return nil, err
		}
	}
	spec, err := json.Marshal(map[string]any{"op": op, "page_bytes": l.PageBytes, "source": l.order(atSource), "destination": l.order(atDestination)})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(w.dir, "load.json")
	if err := os.WriteFile(file, spec, 0o600); err != nil {
		return nil, err
	}
	if w.child, err = startChild(ctx, p.Env, p.Python, filepath.Join(w.dir, "main.py"), file); err != nil {
		return nil, err
	}
	if _, err = w.line("ready"); err != nil {
		return nil, err
	}
	return w, w.signal(syscall.SIGSTOP)
}

// awake asks the peer's processes something. They are stopped otherwise: NIXL's progress thread polls, and would take half
// a core from the ways that run meanwhile.
func (w *peer) awake(what, prefix string) (string, error) {
	if err := w.signal(syscall.SIGCONT); err != nil {
		return "", err
	}
	got, err := w.ask(what, prefix)
	return got, errors.Join(err, w.signal(syscall.SIGSTOP))
}

func (w *peer) do(what string) error {
	got, err := w.awake(what, "did ")
	if err == nil && got != "ok" {
		err = errs.New(errs.Corrupt, "%s: %s", what, got)
	}
	return err
}

// Clear implements Way.
func (w *peer) Clear(context.Context) error { return w.do("clear") }

// Check implements Way.
func (w *peer) Check(context.Context) error { return w.do("check") }

// Run implements Way.
func (w *peer) Run(context.Context) (Timing, error) {
	got, err := w.awake("run", "ran ")
	if err != nil {
		return Timing{}, err
	}
	s, err := strconv.ParseFloat(strings.TrimSpace(got), 64)
	return Timing{Moved: time.Duration(s * float64(time.Second))}, err
}

// Close implements Way.
func (w *peer) Close() error {
	var err error
	if w.child != nil {
		_ = w.signal(syscall.SIGCONT)
		err = w.close()
		_ = w.kill() // what it forked
	}
	_ = os.RemoveAll(w.dir)
	return err
}
