package pair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/ucx"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// childEnv makes the program a child.
const childEnv = "LEASEHOLD_UCX_CHILD"

// Main is the child's life, if this process is one: it does not return then.
func Main() {
	if os.Getenv(childEnv) == "" {
		return
	}
	if err := child(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child serves requests from in until it ends. Descriptors 3 and 4 are its pool and tags.
func child(in io.Reader, out io.Writer) error {
	dec := json.NewDecoder(in)
	var s setup
	if err := dec.Decode(&s); err != nil {
		return err
	}
	poolFile, tagsFile := os.NewFile(3, "pool"), os.NewFile(4, "tags")
	mapped, err := pool.Map(poolFile, tagsFile, s.Pages, s.Layout.PageBytes())
	if err != nil {
		return err
	}
	m, err := Mover(mapped, s.Layout, Options{Transports: s.Transports, PlainTCP: s.PlainTCP, Lanes: s.Lanes, NoDigest: s.NoDigest})
	if err != nil {
		return err
	}
	c := &served{m: m, enc: json.NewEncoder(out)}
	if err := c.say(reply{Address: m.Address()}); err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(c.events)
	for {
		var r request
		if err = dec.Decode(&r); err != nil {
			break
		}
		a := reply{Answer: true}
		if err := c.do(r, &a); err != nil {
			a.Error, a.Kind = err.Error(), errs.KindOf(err)
		}
		if err = c.say(a); err != nil {
			break
		}
	}
	m.Close()
	wg.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

type served struct {
	m   *ucx.Mover
	mu  sync.Mutex
	enc *json.Encoder
}

func (c *served) say(r reply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.enc.Encode(r)
}

func (c *served) events() {
	for {
		list, err := c.m.Next(context.Background())
		if err != nil || c.say(reply{Events: toWire(list)}) != nil {
			return
		}
	}
}

func (c *served) do(r request, a *reply) error {
	switch r.Op {
	case "expect":
		return c.m.Expect(*r.Expect)
	case "provide":
		return c.m.Provide(r.ID, r.Address, r.Window)
	case "send":
		for i := range r.Places {
			if err := c.m.Send(r.ID, r.Places[i], r.Pages[i]); err != nil {
				return err
			}
		}
		return nil
	case "end":
		return c.m.End(r.ID)
	case "counts":
		n := c.m.Counts()
		a.Counts = &n
		return nil
	}
	return errs.New(errs.Invalid, "no operation %q", r.Op)
}

// Options of a Mover.
type Options struct {
	Transports []string
	PlainTCP   bool
	Lanes      int
	NoDigest   bool // a page's digest is 0 then: what is measured is the transfer alone
}

// Mover opens one over a mapped pool, which digests pages as the layout says.
func Mover(mapped *pool.Mapping, l layout.Layout, o Options) (*ucx.Mover, error) {
	return ucx.Open(ucx.Config{Pool: mapped.Memory(), PageBytes: l.PageBytes(), Transports: o.Transports, PlainTCP: o.PlainTCP,
		Lanes: o.Lanes, Digest: func(page, rows uint32) (pagesum.Digest, uint32, error) {
			if o.NoDigest {
				return pagesum.Digest{}, 0, nil
			}
			return engine.PageSum(l, mapped.Page(page), rows, Keys(l))
		}})
}

var (
	keysMu sync.Mutex
	keys   = map[layout.Layout]*pagesum.Keys{}
)

// Keys are the digest's, of a layout and no weights.
func Keys(l layout.Layout) *pagesum.Keys {
	keysMu.Lock()
	defer keysMu.Unlock()
	if keys[l] == nil {
		h := l.Hash()
		keys[l] = pagesum.Expand(h[:], make([]byte, 32), l.Shape())
	}
	return keys[l]
}

// Layout is one whose page has size bytes, a multiple of 32 KiB.
func Layout(size uint64) layout.Layout {
	return layout.Layout{Layers: uint32(size / (32 << 10)), KVHeads: 2, HeadDim: 64, DType: layout.BF16, Order: layout.Pair}
}
