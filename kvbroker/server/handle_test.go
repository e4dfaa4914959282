package server

import (
	"strings"
	"testing"

	"leasehold.dev/kvbroker/client"
	"leasehold.dev/protos/errs"
)

// A worker of other weights comes back each second for as long as it runs.
func TestWorkerThatDisagreesGetsNothingAndLeavesNothing(t *testing.T) {
	n := newNode(t, newFleet(t), "b1", 4)
	hash := small.Hash()
	good := client.Info{LayoutHash: hash[:], ModelRevision: revision[:], TokenizerRevision: tokenizer[:], NumericsClass: "ref-1",
		PageBytes: small.PageBytes()}
	for want, change := range map[string]func(*client.Info){
		"layout hash is 00":                                func(i *client.Info) { i.LayoutHash = make([]byte, 32) },
		"model revision is 00":                             func(i *client.Info) { i.ModelRevision = make([]byte, 32) },
		"tokenizer revision is 00":                         func(i *client.Info) { i.TokenizerRevision = make([]byte, 32) },
		"numerics class is x86-fma-1, broker b1 has ref-1": func(i *client.Info) { i.NumericsClass = "x86-fma-1" },
		"page size is 1, broker b1 has":                    func(i *client.Info) { i.PageBytes = 1 },
	} {
		for range maxHandles/5 + 1 {
			i := good
			change(&i)
			_, err := client.Attach(t.Context(), client.Config{Dir: n.dir, Worker: "d0", Expect: i})
			if errs.KindOf(err) != errs.Invalid || !strings.Contains(err.Error(), want) {
				t.Fatalf("Attach = %v, want that the %s", err, want)
			}
		}
	}
	n.mu.Lock()
	if len(n.handles) != 0 || n.epoch != 0 {
		t.Errorf("%d handles are left, and %d were made", len(n.handles), n.epoch)
	}
	n.mu.Unlock()
	c, err := client.Attach(t.Context(), client.Config{Dir: n.dir, Worker: "d0", Expect: good})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
