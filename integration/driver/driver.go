// Package driver speaks to workers as the router does, one admission at a time, and shows everything that came back.
//
// Scenario tests and bars use it where they must choose the pair and the mover themselves, or look at verdicts and
// digests that a tenant never sees. It holds the router's identity and its admission key.
package driver

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/cli/local"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
	"leasehold.dev/protos/proof"
)

// Driver is safe for concurrent use.
type Driver struct {
	// Mover is that of requests between two brokers; set before the first. Open sets grpc.
	Mover meshv1.Mover

	revision []byte
	key      ed25519.PrivateKey
	conns    map[string]*grpc.ClientConn // by service/id
	brokers  map[string]string           // worker id -> broker
}

// Open connects to all workers of m. revision is the weights' SHA-256.
func Open(ctx context.Context, m *local.Mesh, revision [32]byte) (*Driver, error) {
	d := &Driver{Mover: meshv1.Mover_MOVER_GRPC, revision: revision[:], conns: map[string]*grpc.ClientConn{}, brokers: map[string]string{}}
	id, err := identity.Load(filepath.Join(m.Dir, "identity", "router-router-0"))
	if err != nil {
		return nil, err
	}
	if d.key, err = proof.ReadPrivateKey(filepath.Join(m.Dir, "admission.key.pem")); err != nil {
		return nil, err
	}
	connect := func(service string, workers []local.Worker) error {
		for _, w := range workers {
			a, err := m.Process(service + "/" + w.ID).Addr(ctx)
			if err != nil {
				return err
			}
			cc, err := grpc.NewClient("passthrough:///"+a.GRPC, grpc.WithTransportCredentials(id.ClientCreds(service, w.ID)))
			if err != nil {
				return err
			}
			d.conns[service+"/"+w.ID], d.brokers[w.ID] = cc, w.Broker
		}
		return nil
	}
	if err := errors.Join(connect("prefill", m.Prefills), connect("decode", m.Decodes)); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Close closes the connections.
func (d *Driver) Close() {
	for _, cc := range d.conns {
		cc.Close()
	}
}

// Request is what to run where. Prefill empty: unsplit.
type Request struct {
	Tenant   string
	IDs      []int32
	MaxNew   uint32
	Sampling *decodev1.Sampling
	Prefill  string
	Decode   string
	Change   func(*meshv1.Admission) // nil, or a hand on the ticket before it is signed

	// Run, when not nil, stands in for the prefill worker, which sits at PrefillBroker.
	Run           func(context.Context, *meshv1.SignedAdmission, *meshv1.Admission, []int32) (*meshv1.PrefillVerdict, error)
	PrefillBroker string
}

// Outcome is all that came back.
type Outcome struct {
	Tokens   []int32
	Text     string
	Admitted *decodev1.Admitted
	Decode   *meshv1.DecodeVerdict
	Prefill  *meshv1.PrefillVerdict
	Finished *decodev1.Finished
}

// Admit makes and signs the ticket of r.
func (d *Driver) Admit(r Request) (*meshv1.SignedAdmission, *meshv1.Admission, error) {
	nonce := proof.NewID()
	a := &meshv1.Admission{
		Id: proof.NewID(), Tenant: r.Tenant, Model: "model", ModelRevision: d.revision,
		PromptTokens: uint32(len(r.IDs)), MaxNewTokens: r.MaxNew, Nonce: nonce,
		PromptDigest: proof.PromptDigest(nonce, r.Tenant, d.revision, r.IDs),
		Decode:       r.Decode, DecodeBroker: d.brokers[r.Decode], Mover: meshv1.Mover_MOVER_NONE,
		DeadlineUnixMs: time.Now().Add(5 * time.Minute).UnixMilli(),
	}
	if r.Prefill != "" {
		a.Prefill, a.PrefillBroker, a.Mover = r.Prefill, cmp.Or(r.PrefillBroker, d.brokers[r.Prefill]), d.Mover
		if a.PrefillBroker == a.DecodeBroker {
			a.Mover = meshv1.Mover_MOVER_LOCAL
		}
	}
	if r.Change != nil {
		r.Change(a)
	}
	ticket, err := d.Sign(a)
	return ticket, a, err
}

// Sign makes a ticket of a, as the router would.
func (d *Driver) Sign(a *meshv1.Admission) (*meshv1.SignedAdmission, error) {
	return proof.Sign(d.key, a)
}

// Decoder and Prefiller are the workers' clients.
func (d *Driver) Decoder(id string) decodev1.DecodeServiceClient {
	return decodev1.NewDecodeServiceClient(d.conns["decode/"+id])
}

// Prefiller is the client of a prefill worker.
func (d *Driver) Prefiller(id string) prefillv1.PrefillServiceClient {
	return prefillv1.NewPrefillServiceClient(d.conns["prefill/"+id])
}

func (d *Driver) prefill(ctx context.Context, r Request, ticket *meshv1.SignedAdmission, a *meshv1.Admission) (*meshv1.PrefillVerdict, error) {
	if r.Run != nil {
		return r.Run(ctx, ticket, a, r.IDs)
	}
	res, err := d.Prefiller(r.Prefill).Run(ctx, &prefillv1.RunRequest{Admission: ticket, TokenIds: r.IDs})
	return res.GetVerdict(), err
}

// Run drives r to its end, as the router would: Generate first, Run once it is admitted. What came back before an error
// is in the Outcome.
func (d *Driver) Run(ctx context.Context, r Request) (Outcome, error) {
	ticket, a, err := d.Admit(r)
	if err != nil {
		return Outcome{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var out Outcome
	if r.Sampling == nil {
		r.Sampling = &decodev1.Sampling{}
	}
	stream, err := d.Decoder(r.Decode).Generate(ctx, &decodev1.GenerateRequest{Admission: ticket, TokenIds: r.IDs, Sampling: r.Sampling})
	if err != nil {
		return out, errs.FromStatus(err)
	}
	type answer struct {
		v   *meshv1.PrefillVerdict
		err error
	}
	prefilled := make(chan answer, 1)
	started := false
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return out, errs.FromStatus(err)
		}
		switch ev := msg.Event.(type) {
		case *decodev1.GenerateResponse_Admitted:
			out.Admitted = ev.Admitted
			if r.Prefill != "" {
				started = true
				go func() {
					v, err := d.prefill(ctx, r, ticket, a)
					prefilled <- answer{v, err}
				}()
			}
		case *decodev1.GenerateResponse_Verdict:
			out.Decode = ev.Verdict
		case *decodev1.GenerateResponse_Tokens:
			for _, t := range ev.Tokens.Tokens {
				out.Tokens = append(out.Tokens, t.Id)
			}
			out.Text += ev.Tokens.Text
		case *decodev1.GenerateResponse_Finished:
			out.Finished = ev.Finished
		}
	}
	if started {
		a := <-prefilled
		if a.err != nil {
			return out, errs.FromStatus(a.err)
		}
		out.Prefill = a.v
	}
	if out.Finished == nil {
		return out, errs.New(errs.Corrupt, "the stream ended OK without Finished")
	}
	return out, nil
}
