package pair

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/ucx"
	"leasehold.dev/protos/errs"
)

// Remote is a child and its Mover. One goroutine calls its methods, but Next, which another one may.
type Remote struct {
	Pool    *pool.Pool // the child's, mapped here
	Process *os.Process

	cmd     *exec.Cmd
	in      io.WriteCloser
	enc     *json.Encoder
	address []byte
	answers chan reply
	events  chan []ucx.Event
	wg      sync.WaitGroup
}

// Start makes a pool and a child that moves its pages. The child ends with Close.
func Start(l layout.Layout, pages uint32, o Options) (*Remote, error) {
	p, err := pool.New(pages, l.PageBytes())
	if err != nil {
		return nil, err
	}
	r := &Remote{Pool: p, answers: make(chan reply, 1), events: make(chan []ucx.Event, 1<<16)}
	if err := r.start(setup{Pages: pages, Layout: l, Transports: o.Transports, PlainTCP: o.PlainTCP, Lanes: o.Lanes, NoDigest: o.NoDigest}); err != nil {
		p.Close()
		return nil, err
	}
	return r, nil
}

func (r *Remote) start(s setup) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	r.cmd = exec.Command(exe)
	r.cmd.Env = append(os.Environ(), childEnv+"=1")
	poolFile, tagsFile := r.Pool.Files()
	r.cmd.ExtraFiles = []*os.File{poolFile, tagsFile}
	r.cmd.Stderr = os.Stderr
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	r.Process, r.enc = r.cmd.Process, json.NewEncoder(r.in)
	first := make(chan []byte, 1)
	r.wg.Go(func() { r.read(json.NewDecoder(out), first) })
	if err := r.enc.Encode(s); err == nil {
		r.address = <-first
	}
	if r.address == nil {
		r.Close()
		return errs.New(errs.Unavailable, "the child did not start")
	}
	return nil
}

func (r *Remote) read(dec *json.Decoder, first chan<- []byte) {
	defer close(r.answers)
	defer close(r.events)
	defer close(first)
	for {
		var a reply
		if dec.Decode(&a) != nil {
			return
		}
		switch {
		case a.Address != nil:
			first <- a.Address
		case a.Answer:
			r.answers <- a
		default:
			r.events <- fromWire(a.Events)
		}
	}
}

func (r *Remote) call(q request) (reply, error) {
	if err := r.enc.Encode(q); err != nil {
		return reply{}, errs.Mark(err, errs.Unavailable)
	}
	a, ok := <-r.answers
	if !ok {
		return a, errs.New(errs.Unavailable, "the child is gone")
	}
	if a.Error != "" {
		return a, errs.New(a.Kind, "%s", a.Error)
	}
	return a, nil
}

// Address is the child's Mover's.
func (r *Remote) Address() []byte { return r.address }

// Expect is the child's Mover's.
func (r *Remote) Expect(e ucx.Expectation) error {
	_, err := r.call(request{Op: "expect", Expect: &e})
	return err
}

// Provide is the child's Mover's.
func (r *Remote) Provide(id ucx.ID, address []byte, window uint32) error {
	_, err := r.call(request{Op: "provide", ID: id, Address: address, Window: window})
	return err
}

// Send gives pages for places, in order.
func (r *Remote) Send(id ucx.ID, places, pages []uint32) error {
	_, err := r.call(request{Op: "send", ID: id, Places: places, Pages: pages})
	return err
}

// End is the child's Mover's.
func (r *Remote) End(id ucx.ID) error {
	_, err := r.call(request{Op: "end", ID: id})
	return err
}

// Counts is the child's Mover's.
func (r *Remote) Counts() (ucx.Counts, error) {
	a, err := r.call(request{Op: "counts"})
	if err != nil {
		return ucx.Counts{}, err
	}
	return *a.Counts, nil
}

// Next waits for events of the child's Mover. Unavailable: it is gone.
func (r *Remote) Next(ctx context.Context) ([]ucx.Event, error) {
	select {
	case list, ok := <-r.events:
		if !ok {
			return nil, errs.New(errs.Unavailable, "the child is gone")
		}
		return list, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Kill kills the child and waits for it. A dead process that nobody has waited for is alive to UCX, which looks for it in
// /proc.
func (r *Remote) Kill() error {
	if err := r.Process.Kill(); err != nil {
		return err
	}
	r.reap()
	return nil
}

func (r *Remote) reap() {
	r.wg.Wait()
	_ = r.cmd.Wait() // killed children end badly
}

// Close ends the child, dead or alive, and waits for it.
func (r *Remote) Close() {
	_ = r.in.Close()
	r.reap()
	r.Pool.Close()
}
