package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"leasehold.dev/cli/doctor"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
	"leasehold.dev/protos/errs"
)

// Real connections: the prefill worker is under its promise, the decode worker and the broker are as they should be, and one
// address has nobody.
func TestDoctorAsksEverybodyAtOnce(t *testing.T) {
	addr := processes(t)
	all := []registry.Listed{
		{Instance: registry.Instance{Service: "prefill", ID: "p", Address: addr}},
		{Instance: registry.Instance{Service: "decode", ID: "d", Address: addr}, Passing: true},
		{Instance: registry.Instance{Service: "kvbroker", ID: "broker-d", Address: addr}, Passing: true},
		{Instance: registry.Instance{Service: "kvbroker", ID: "away", Address: "127.0.0.1:1"}, Passing: true},
	}
	r := doctor.Examine(askAll(t.Context(), all, identity.Plain(), 5*time.Second), nil)
	text := fmt.Sprintf("%+v", r.Findings)
	for _, want := range []string{
		"{Check:limits Service:prefill ID:p Text:it promises 8192 tokens and derived 4096 (160 pages)}",
		"{Check:listed Service:prefill ID:p ", "{Check:ready Service:prefill ID:p ", "{Check:guards Service:prefill ID:p ",
		"{Check:answer Service:kvbroker ID:away Text:no answer: ", "{Check:missing Service:router ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no finding %s in\n%s", want, text)
		}
	}
	if r.OK || len(r.Workers) != 2 || len(r.Brokers) != 1 {
		t.Errorf("report %+v", r)
	}
}

// doctor --rdma looks at this host, in words or as JSON, and is an error on one without RDMA.
func TestDoctorLooksAtTheHost(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		err := (&doctorCommand{RDMA: true, Pool: 1 << 62, JSON: asJSON}).Run(t.Context(), streams{out: &out})
		if errs.KindOf(err) != errs.Unavailable { // no limit is that high but none, and then there is no device here
			t.Errorf("Run = %v, want unavailable", err)
		}
		want := "CHECK"
		if asJSON {
			want = `"verdict": `
		}
		if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "memlock") {
			t.Errorf("JSON %v: no %s in\n%s", asJSON, want, out.String())
		}
	}
}
