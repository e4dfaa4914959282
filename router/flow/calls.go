package flow

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"leasehold.dev/mesh/peers"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
	"leasehold.dev/router/record"
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

func moverName(m meshv1.Mover) string {
	return strings.ToLower(strings.TrimPrefix(m.String(), "MOVER_"))
}

// guard runs f under the peer's breaker. Only fault moves it, which is the peer's own: that it was not reached, did not
// answer in time, or had a bug. A worker that relays another's loss is itself well, what the other half of the request
// said is the other half's, and a client that went away says nothing about anybody.
func guard(p *peers.Peer, f func() (out, fault error)) error {
	var out error
	err := p.Do(func() (fault error) {
		out, fault = f()
		return fault
	})
	if out == nil {
		out = err
	}
	return out
}

// answered reports whether the peer itself, and not our own side of the connection, ended the call: then a content type
// came, in the header or, when there was none, in the trailer.
func answered(header, trailer metadata.MD) bool {
	return len(header.Get("content-type")) > 0 || len(trailer.Get("content-type")) > 0
}

// ended turns the end of a call into an error of ours. A limit of ours is named by its cause; so is a cancel of ours, but
// not where the worker had its own say before it.
func ended(ctx context.Context, err error) error {
	err = errs.FromStatus(err)
	stopped := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if ctx.Err() != nil {
		if cause := context.Cause(ctx); stopped || !errors.Is(cause, context.Canceled) {
			return cause
		}
		return err
	}
	if stopped { // at the worker's own side: it goes away, or a transfer took too long
		return errs.New(errs.Unavailable, "the worker ended the call: %s", err.Error())
	}
	return err
}

// prefill makes P's call.
func (a *attempt) prefill(ctx context.Context) (*meshv1.PrefillVerdict, error) {
	id := a.route.Prefill.ID
	peer := a.r.Fleet.Prefill.Get(id)
	if peer == nil {
		return nil, errs.New(errs.Unavailable, "prefill worker %s has left", id)
	}
	start := time.Now()
	var v *meshv1.PrefillVerdict
	err := guard(peer, func() (out, fault error) {
		var header, trailer metadata.MD
		answer, err := prefillv1.NewPrefillServiceClient(peer.Conn).Run(ctx,
			&prefillv1.RunRequest{Admission: a.signed, TokenIds: a.job.IDs}, grpc.Header(&header), grpc.Trailer(&trailer))
		if err != nil {
			lost := ctx.Err() == nil && !answered(header, trailer)
			if lost {
				a.r.Fleet.Lost("prefill", id)
			}
			if err = ended(ctx, err); lost || isLate(ctx) || errs.KindOf(err) == errs.Internal {
				return err, err
			}
			return err, nil
		}
		v = answer.GetVerdict()
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, errs.New(errs.Corrupt, "prefill worker %s answered without a verdict", id)
	}
	a.sealed.Store(true)
	a.note(func(c *record.Choice) { c.PrefillMS = record.MS(time.Since(start)) })
	return v, nil
}

// decodeCall is D's stream. One goroutine uses it at a time.
type decodeCall struct {
	a        *attempt
	ctx      context.Context
	stream   grpc.ServerStreamingClient[decodev1.GenerateResponse]
	admitted bool
	err      error // how D's stream failed; not what P or a comparison said
}

// guarded runs the part of the call before the first token under the peer's breaker.
func (d *decodeCall) guarded(f func() error) error {
	id := d.a.route.Decode.ID
	peer := d.a.r.Fleet.Decode.Get(id)
	if peer == nil {
		return errs.New(errs.Unavailable, "decode worker %s has left", id)
	}
	return guard(peer, func() (out, fault error) {
		out = f()
		return out, d.fault()
	})
}

// fault is d.err when D itself is to blame for it.
func (d *decodeCall) fault() error {
	if d.err != nil && (d.silent() || d.unreached() || errs.KindOf(d.err) == errs.Internal) {
		return d.err
	}
	return nil
}

// failed keeps the error with which the call ended.
func (d *decodeCall) failed(err error) error {
	d.err = ended(d.ctx, err)
	return d.err
}

// silent reports whether D, and not P before it, was over a limit of ours.
func (d *decodeCall) silent() bool {
	waitsForP := d.admitted && d.a.route.Prefill != nil && !d.a.sealed.Load()
	return d.ctx != nil && isLate(d.ctx) && !waitsForP
}

// unreached reports whether the call ended before D said a word.
func (d *decodeCall) unreached() bool {
	if d.stream == nil {
		return true
	}
	if context.Cause(d.ctx) != nil {
		return false // ended by us
	}
	h, _ := d.stream.Header() // without one there is a trailer, or nothing
	lost := !answered(h, d.stream.Trailer())
	if lost {
		d.a.r.Fleet.Lost("decode", d.a.route.Decode.ID)
	}
	return lost
}

// limit ends the attempt when D takes longer.
func (d *decodeCall) limit(after time.Duration, what string) *time.Timer {
	err := errs.Mark(&late{d.a.route.Decode.ID, what, after}, errs.Unavailable)
	return time.AfterFunc(after, func() { d.a.cancel(err) })
}

func (d *decodeCall) open(ctx context.Context) (*decodev1.Admitted, error) {
	d.ctx = ctx
	limit := d.limit(d.a.r.Times.Admit, "admittance")
	peer := d.a.r.Fleet.Decode.Get(d.a.route.Decode.ID)
	if peer == nil {
		limit.Stop()
		d.err = errs.New(errs.Unavailable, "decode worker %s has left", d.a.route.Decode.ID)
		return nil, d.err
	}
	var err error
	d.stream, err = decodev1.NewDecodeServiceClient(peer.Conn).Generate(ctx,
		&decodev1.GenerateRequest{Admission: d.a.signed, TokenIds: d.a.job.IDs, Sampling: d.a.job.Sampling})
	if err != nil {
		d.stream = nil
		limit.Stop()
		return nil, d.failed(err)
	}
	m, err := d.recv()
	limit.Stop()
	if err != nil {
		return nil, err
	}
	if m.GetAdmitted() == nil {
		return nil, d.order(m, "Admitted")
	}
	d.admitted = true
	return m.GetAdmitted(), nil
}

func (d *decodeCall) recv() (*decodev1.GenerateResponse, error) {
	m, err := d.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, errs.New(errs.Corrupt, "decode worker %s ended the stream before Finished", d.a.route.Decode.ID)
	}
	if err != nil {
		return nil, d.failed(err)
	}
	return m, nil
}

func (d *decodeCall) order(m *decodev1.GenerateResponse, want string) error {
	return errs.New(errs.Corrupt, "decode worker %s sent %T, want %s", d.a.route.Decode.ID, m.GetEvent(), want)
}

func (d *decodeCall) verdict() (*meshv1.DecodeVerdict, error) {
	m, err := d.recv()
	if err != nil {
		return nil, err
	}
	if m.GetVerdict() == nil {
		return nil, d.order(m, "Verdict")
	}
	return m.GetVerdict(), nil
}

// next is Tokens or Finished; after Finished the stream has ended well.
func (d *decodeCall) next() (*decodev1.Tokens, *decodev1.Finished, error) {
	m, err := d.recv()
	if err != nil {
		return nil, nil, err
	}
	switch e := m.GetEvent().(type) {
	case *decodev1.GenerateResponse_Tokens:
		return e.Tokens, nil, nil
	case *decodev1.GenerateResponse_Finished:
		if extra, err := d.stream.Recv(); !errors.Is(err, io.EOF) {
			if err == nil {
				return nil, nil, d.order(extra, "the end")
			}
			return nil, nil, d.failed(err)
		}
		return nil, e.Finished, nil
	}
	return nil, nil, d.order(m, "Tokens or Finished")
}
