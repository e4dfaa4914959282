package haul

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"unsafe"

	"leasehold.dev/protos/errs"
)

// Sending reports whether this process was started as a source's, and has been one until its input ended.
func Sending() bool {
	spec := os.Getenv(sendingEnv)
	if spec == "" {
		return false
	}
	if err := send(spec); err != nil {
		fmt.Fprintln(os.Stderr, "source:", err)
		os.Exit(1)
	}
	return true
}

func send(spec string) error {
	var s sending
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return err
	}
	p, err := newPages(s.Load, atSource)
	if err != nil {
		return err
	}
	defer p.Pool.Close()
	p.fill()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	a, end, err := s.serve(ctx, p)
	if err != nil {
		return err
	}
	defer end()
	a.PID, a.Base = os.Getpid(), uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p.Pool.Page(0)))))
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	fmt.Printf("ready %s\n", line)
	_, err = io.Copy(io.Discard, os.Stdin)
	stop()
	return err
}

func (s sending) serve(ctx context.Context, p *Pages) (Address, func(), error) {
	switch s.Kind {
	case "memory":
		return Address{}, func() {}, nil
	case "stream":
		return serveStream(s.Options, p)
	}
	m, ok := movers[s.Kind]
	if !ok {
		return Address{}, nil, errs.New(errs.Invalid, "no mover is named %q", s.Kind)
	}
	src, err := newSources(p)
	if err != nil {
		return Address{}, nil, err
	}
	return m.Serve(ctx, s.Options, src)
}
