package doctor

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/choose"
)

// Wanted is how many passing processes each service must have at least; a service that is not named must have one.
type Wanted map[string]int

var services = []string{"router", "prefill", "decode", "kvbroker"}

// Examine holds all against each other. Missing is a failure: what did not answer, or said no number, is a finding.
func Examine(all []Said, want Wanted) Report {
	x := &examination{brokers: map[string]Said{}, out: Report{Findings: []Finding{}, Routers: []Router{}, Workers: []Worker{}, Brokers: []Broker{}, Pairs: []Pair{}}}
	x.count(all, want)
	for _, s := range all {
		x.process(s)
	}
	for _, s := range all {
		if s.Status != nil {
			x.attached(s)
		}
	}
	x.fleets()
	x.out.OK = len(x.out.Findings) == 0
	return x.out
}

type examination struct {
	out     Report
	brokers map[string]Said
	fleet   choose.Fleet
	models  []choose.Model // one a router
}

func (x *examination) find(check string, s Said, format string, args ...any) {
	x.out.Findings = append(x.out.Findings, Finding{check, s.Service, s.ID, fmt.Sprintf(format, args...)})
}

func (x *examination) count(all []Said, want Wanted) {
	for _, service := range slices.Concat(services, slices.DeleteFunc(slices.Sorted(maps.Keys(want)), func(s string) bool { return slices.Contains(services, s) })) {
		least, named := want[service]
		if !named {
			least = 1
		}
		have := 0
		for _, s := range all {
			if s.Service == service && s.Passing {
				have++
			}
		}
		if have < least {
			x.find(CheckMissing, Said{Service: service}, "%d of at least %d pass", have, least)
		}
	}
}

func (x *examination) process(s Said) {
	if !s.Passing {
		x.find(CheckListed, s, "it is in the registry and does not pass its own check")
	}
	if s.Err != "" {
		x.find(CheckAnswer, s, "no answer: %s", s.Err)
	}
	switch {
	case s.Service == "router":
		x.router(s)
	case s.Broker != nil:
		x.brokers[s.ID] = s
		id, pool := s.Broker.GetIdentity(), s.Broker.GetPool()
		x.out.Brokers = append(x.out.Brokers, Broker{ID: s.ID, Passing: s.Passing, Instance: short(id.GetInstance()), Pages: pool.GetPages(),
			Free: pool.GetFree(), Quarantine: pool.GetQuarantine(), Layout: short(id.GetLayoutHash()), Revision: short(id.GetModelRevision()),
			Numerics: id.GetNumericsClass(), AnswerMS: s.Took.Milliseconds()})
	case s.Status != nil:
		x.worker(s)
	case s.Err == "":
		x.find(CheckAnswer, s, "it said nothing of itself")
	}
}

func (x *examination) router(s Said) {
	n, err := strconv.ParseUint(s.Meta["promise"], 10, 32)
	revision, bad := hex.DecodeString(s.Meta["revision"])
	tokenizer, worse := hex.DecodeString(s.Meta["tokenizer"])
	if err != nil || bad != nil || worse != nil || n == 0 || len(revision) == 0 {
		x.find(CheckAnswer, s, "its registry entry has no promise, revision and tokenizer")
		return
	}
	x.out.Routers = append(x.out.Routers, Router{s.ID, s.Passing, uint32(n)})
	x.models = append(x.models, choose.Model{Revision: string(revision), Tokenizer: string(tokenizer), Promise: uint32(n)})
}

func (x *examination) worker(s Said) {
	st := s.Status
	x.out.Workers = append(x.out.Workers, Worker{Service: s.Service, ID: s.ID, Passing: s.Passing, Ready: st.GetReady(),
		Promise: st.GetPromisedTokens(), Derived: st.GetLimitTokens(), Effective: min(st.GetPromisedTokens(), st.GetLimitTokens()),
		Broker: st.GetBroker(), Pages: st.GetPoolPages(), Layout: short(st.GetLayoutHash()), Revision: short(st.GetModelRevision()),
		Numerics: st.GetNumericsClass(), GuardsOn: st.GetGuardsOn(), AnswerMS: s.Took.Milliseconds()})
	if st.GetId() != s.ID {
		x.find(CheckAnswer, s, "it calls itself %q", st.GetId())
	}
	if !st.GetReady() {
		x.find(CheckReady, s, "not ready: %s", st.GetReason())
	}
	if !st.GetGuardsOn() {
		x.find(CheckGuards, s, "its guards are off")
	}
	switch promise, derived := st.GetPromisedTokens(), st.GetLimitTokens(); {
	case promise == 0 || derived == 0:
		x.find(CheckAnswer, s, "it promises %d tokens and derived %d: one of the two is missing", promise, derived)
	case promise > derived:
		x.find(CheckLimits, s, "it promises %d tokens and derived %d (%d pages)", promise, derived, st.GetPoolPages())
	}
	w := choose.FromStatus(st)
	w.ID, w.Up = s.ID, w.Up && s.Passing
	if s.Service == "prefill" {
		x.fleet.Prefill = append(x.fleet.Prefill, w)
	} else {
		x.fleet.Decode = append(x.fleet.Decode, w)
	}
}

// attached holds a worker against the broker that it says it is attached to.
func (x *examination) attached(s Said) {
	st := s.Status
	b, ok := x.brokers[st.GetBroker()]
	if !ok {
		x.find(CheckAttached, s, "attached to broker %q, which does not answer", st.GetBroker())
		return
	}
	id, pool := b.Broker.GetIdentity(), b.Broker.GetPool()
	if got, want := short(st.GetBrokerInstance()), short(id.GetInstance()); got != want {
		x.find(CheckAttached, s, "attached to instance %s of broker %s, the one that answers is %s", got, b.ID, want)
	}
	if st.GetPoolPages() != pool.GetPages() {
		x.find(CheckAttached, s, "it counts %d pages in the pool of broker %s, which has %d", st.GetPoolPages(), b.ID, pool.GetPages())
	}
	for _, f := range []struct{ what, got, want string }{
		{"layout hash", short(st.GetLayoutHash()), short(id.GetLayoutHash())},
		{"weights", short(st.GetModelRevision()), short(id.GetModelRevision())},
		{"tokenizer", short(st.GetTokenizerRevision()), short(id.GetTokenizerRevision())},
		{"numerics class", st.GetNumericsClass(), id.GetNumericsClass()},
	} {
		if f.got != f.want || f.got == "" {
			x.find(CheckCompatible, s, "%s %q, its broker's is %q", f.what, f.got, f.want)
		}
	}
}

// fleets holds the two halves against each other, and the routers' promises against them.
func (x *examination) fleets() {
	partnered := map[string]bool{}
	for _, p := range x.fleet.Prefill {
		for _, d := range x.fleet.Decode {
			pair := Pair{Prefill: p.ID, Decode: d.ID}
			if m := choose.Mover(p, d); m == meshv1.Mover_MOVER_UNSPECIFIED {
				pair.Why = differs(p, d)
			} else {
				partnered["prefill/"+p.ID], partnered["decode/"+d.ID] = true, true
				pair.Mover = strings.ToLower(strings.TrimPrefix(m.String(), "MOVER_"))
				pair.Effective = choose.PairLimit(p, d, choose.Model{Promise: x.promise()})
				if !p.Up || !d.Up {
					pair.Why = "not ready"
				}
			}
			x.out.Pairs = append(x.out.Pairs, pair)
		}
	}
	for _, w := range x.out.Workers {
		if !partnered[w.Service+"/"+w.ID] {
			x.find(CheckPairs, Said{Service: w.Service, ID: w.ID}, "no worker of the other half agrees with it on weights, tokenizer, layout, numerics class and mover")
		}
	}
	for i, m := range x.models {
		r := Said{Service: "router", ID: x.out.Routers[i].ID}
		effective, largest := choose.Effective(x.fleet, m), choose.Largest(x.fleet, m)
		if i == 0 || effective < x.out.Effective {
			x.out.Effective = effective
		}
		if i == 0 || largest < x.out.Largest {
			x.out.Largest = largest
		}
		if m.Promise > largest {
			x.find(CheckLimits, r, "it promises %d tokens, the largest pair can hold %d", m.Promise, largest)
		}
	}
}

// promise is the least that a router promises; 0: none said.
func (x *examination) promise() uint32 {
	var least uint32
	for i, m := range x.models {
		if i == 0 || m.Promise < least {
			least = m.Promise
		}
	}
	return least
}

func differs(p, d choose.Worker) string {
	for _, f := range []struct{ what, p, d string }{
		{"weights", short([]byte(p.ModelRevision)), short([]byte(d.ModelRevision))},
		{"tokenizer", short([]byte(p.TokenizerRevision)), short([]byte(d.TokenizerRevision))},
		{"layout", short([]byte(p.LayoutHash)), short([]byte(d.LayoutHash))},
		{"numerics class", p.Numerics, d.Numerics},
	} {
		if f.p != f.d {
			return fmt.Sprintf("%s %s and %s", f.what, f.p, f.d)
		}
	}
	return "no mover that both have"
}

func short(b []byte) string { return hex.EncodeToString(b[:min(6, len(b))]) }
