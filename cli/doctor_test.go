package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"leasehold.dev/cli/doctor"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
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
