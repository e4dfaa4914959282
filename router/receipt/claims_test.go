package receipt_test

import (
	"crypto/sha256"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	proofs "leasehold.dev/protos/receipt"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/flow"
	"leasehold.dev/router/receipt"
)

func hash(s string) []byte { h := sha256.Sum256([]byte(s)); return h[:] }

var (
	began = time.UnixMilli(1_000_000)
	id    = receipt.ID(hash("id")[:16])
)

// account is of a finished split choice.
func account() *flow.Account {
	return &flow.Account{
		Admission: &meshv1.Admission{Id: hash("admission")[:16], Tenant: "acme", Model: "m", ModelRevision: hash("weights"), PromptTokens: 200, MaxNewTokens: 10,
			PromptDigest: hash("prompt"), Nonce: hash("nonce")[:16], Prefill: "p", Decode: "d", PrefillBroker: "b1", DecodeBroker: "b2", Mover: meshv1.Mover_MOVER_GRPC},
		Admitted: &decodev1.Admitted{Pages: 4, ExpectedPages: 4},
		Prefill:  &meshv1.PrefillVerdict{LeaseHash: hash("lp"), Instance: hash("ip")[:16], Epoch: 3},
		Decode: &meshv1.DecodeVerdict{LeaseHash: hash("ld"), ModelRevision: hash("weights"), PromptDigest: hash("prompt"), Rows: 199, Pages: 4, ExpectedPages: 4,
			Root: hash("root"), Mover: meshv1.Mover_MOVER_GRPC, Instance: hash("di")[:16], Epoch: 5},
		Finished: &decodev1.Finished{Reason: decodev1.FinishReason_FINISH_REASON_LENGTH, PromptTokens: 200, CompletionTokens: 10, OutputDigest: hash("out"),
			LogitDigest: hash("logits"), GuardsOn: true, NumericsClass: "ref-1"},
		Sampling: &decodev1.Sampling{Temperature: 0.7, TopP: 0.9, TopK: 40, MinP: 0.1, FrequencyPenalty: 0.2, PresencePenalty: 0.3, RepetitionPenalty: 1.1,
			LogitBias: map[int32]float32{9: 1, 3: -2}, Seed: 1 << 63, Stop: []string{"secret stop"}, IgnoreEos: true, Logprobs: true, TopLogprobs: 3},
		Route: choose.Route{Why: choose.SplitGRPC}, FirstToken: began.Add(time.Second),
	}
}

func alone() *flow.Account {
	a := account()
	a.Prefill, a.Route.Why = nil, choose.UnsplitShort
	a.Admission.Prefill, a.Admission.PrefillBroker, a.Admission.Mover, a.Decode.Mover = "", "", meshv1.Mover_MOVER_NONE, meshv1.Mover_MOVER_NONE
	a.Decode.Rows, a.Decode.Pages, a.Decode.ExpectedPages, a.Decode.Root, a.Admitted.ExpectedPages = 0, 0, 0, nil, 0
	return a
}

func of(a *flow.Account) *proofs.Claims {
	return receipt.Claims(id, hash("request")[:16], 1, a, began, began.Add(2*time.Second))
}

func claims() *proofs.Claims { return of(account()) }

func TestClaimsOfAFinishedChoice(t *testing.T) {
	c := claims()
	want := &proofs.Claims{Version: 1, ID: id[:], Request: hash("request")[:16], Choice: 1, Tenant: "acme", Nonce: hash("nonce")[:16], PromptDigest: hash("prompt"),
		OutputDigest: hash("out"), LogitDigest: hash("logits"), Model: "m", ModelRevision: hash("weights"), Numerics: "ref-1",
		Sampling: proofs.Sampling{Temperature: 0.7, TopP: 0.9, TopK: 40, MinP: 0.1, FrequencyPenalty: 0.2, PresencePenalty: 0.3, RepetitionPenalty: 1.1,
			LogitBias: []proofs.Bias{{Token: 3, Bias: -2}, {Token: 9, Bias: 1}}, Seed: 1 << 63, StopDigest: proofs.StopDigest([]string{"secret stop"}), IgnoreEOS: true, MaxNew: 10},
		Workers: proofs.Halves[string]{Prefill: "p", Decode: "d"}, Leases: proofs.Halves[proofs.Hex]{Prefill: hash("lp"), Decode: hash("ld")},
		Instances: proofs.Halves[proofs.Hex]{Prefill: hash("ip")[:16], Decode: hash("di")[:16]}, Epochs: proofs.Halves[uint64]{Prefill: 3, Decode: 5},
		Tokens: proofs.Tokens{Prompt: 200, Completion: 10, Rows: 199}, Pages: proofs.Pages{Reserved: 4, Expected: 4, Moved: 4}, Root: hash("root"), GuardsOn: true,
		Verdict: "equal", Finish: "length", Route: "split:grpc", Mover: "grpc", Times: proofs.Times{Received: 1_000_000, FirstToken: 1_001_000, Finished: 1_002_000}}
	if d := cmp.Diff(want, c); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for why, c := range map[string]*proofs.Claims{"split": c, "unsplit": of(alone())} {
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// What a worker did not say cannot be signed.
func TestNoReceiptOfLessThanAll(t *testing.T) {
	ring, err := receipt.OpenRing(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	issuer := &receipt.Issuer{Ring: ring}
	for why, twist := range map[string]func(*flow.Account){
		"no decode verdict":      func(a *flow.Account) { a.Decode = nil },
		"no prefill verdict":     func(a *flow.Account) { a.Prefill = nil },
		"nothing admitted":       func(a *flow.Account) { a.Admitted = nil },
		"not finished":           func(a *flow.Account) { a.Finished = nil },
		"no logit digest":        func(a *flow.Account) { a.Finished.LogitDigest = nil },
		"more than was admitted": func(a *flow.Account) { a.Finished.CompletionTokens = 11 },
		"a page is missing":      func(a *flow.Account) { a.Decode.Pages = 3 },
		"no epoch":               func(a *flow.Account) { a.Decode.Epoch = 0 },
	} {
		a := account()
		twist(a)
		if jws, err := issuer.Sign(of(a)); errs.KindOf(err) != errs.Invalid || jws != "" {
			t.Errorf("%s: %v, want Invalid", why, err)
		}
	}
	issuer.Head = func() *proofs.Head { return &proofs.Head{Sequence: 9, Hash: hash("head")} }
	jws, err := issuer.Sign(claims())
	if err != nil {
		t.Fatal(err)
	}
	if c, err := ring.Keys.Verify(jws); err != nil || c.Audit == nil || c.Audit.Sequence != 9 {
		t.Errorf("the audit log's head: %+v, %v", c, err)
	}
}

// A receipt has all that a worker needs to do it again, but for text and what does not change the tokens.
func TestSamplingComesBack(t *testing.T) {
	a := account()
	want := proto.Clone(a.Sampling).(*decodev1.Sampling)
	want.Logprobs, want.TopLogprobs = false, 0
	if d := cmp.Diff(want, receipt.Sampling(claims(), a.Sampling.Stop), protocmp.Transform()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	a.Sampling = &decodev1.Sampling{}
	if d := cmp.Diff(a.Sampling, receipt.Sampling(of(a), nil), protocmp.Transform()); d != "" {
		t.Errorf("greedy (-want +got):\n%s", d)
	}
}
