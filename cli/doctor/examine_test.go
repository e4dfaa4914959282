package doctor_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"leasehold.dev/cli/doctor"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func worker(service, id, broker string, promise, limit uint32) doctor.Said {
	return doctor.Said{Service: service, ID: id, Passing: true, Took: 7 * time.Millisecond, Status: &meshv1.WorkerStatus{
		Id: id, Broker: broker, BrokerInstance: []byte("instance-" + broker), Model: "m", ModelRevision: []byte("weights"),
		TokenizerRevision: []byte("tokens"), LayoutHash: []byte("layout"), NumericsClass: "cpu-1", LimitTokens: limit, PromisedTokens: promise,
		PoolPages: limit / 64, FreePages: limit / 64, Ready: true, GuardsOn: true, Movers: []meshv1.Mover{meshv1.Mover_MOVER_LOCAL, meshv1.Mover_MOVER_GRPC},
	}}
}

func broker(id string, pages uint32) doctor.Said {
	return doctor.Said{Service: "kvbroker", ID: id, Passing: true, Took: 3 * time.Millisecond, Broker: &brokerv1.DescribeResponse{
		Identity: &brokerv1.BrokerIdentity{Name: id, Instance: []byte("instance-" + id), LayoutHash: []byte("layout"), ModelRevision: []byte("weights"),
			TokenizerRevision: []byte("tokens"), NumericsClass: "cpu-1", PoolPages: pages},
		Pool: &brokerv1.PoolCount{Pages: pages, Free: pages - 1, Quarantine: 1},
	}}
}

func router(id string, promise uint32) doctor.Said {
	return doctor.Said{Service: "router", ID: id, Passing: true, Meta: map[string]string{"promise": fmt.Sprint(promise),
		"revision": hex.EncodeToString([]byte("weights")), "tokenizer": hex.EncodeToString([]byte("tokens"))}}
}

// healthy is a router, a pair, and their brokers. Indices: router 0, prefill 1, decode 2, brokers 3 and 4.
func healthy() []doctor.Said {
	return []doctor.Said{router("r", 640), worker("prefill", "p", "bp", 640, 640), worker("decode", "d", "bd", 640, 1280),
		broker("bp", 10), broker("bd", 20)}
}

func TestExamine(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func([]doctor.Said) []doctor.Said
		want   string // "check id" of each finding
	}{
		{"a healthy mesh", func(a []doctor.Said) []doctor.Said { return a }, ""},
		{"nobody at all", func([]doctor.Said) []doctor.Said { return nil }, "missing, missing, missing, missing"},
		{"prefill one token short", func(a []doctor.Said) []doctor.Said { a[1].Status.PromisedTokens = 641; return a }, "limits p"},
		{"the incident: P derived less than all promise", func(a []doctor.Said) []doctor.Said {
			a[0], a[1].Status.PromisedTokens, a[2].Status.PromisedTokens, a[1].Status.Ready = router("r", 1280), 1280, 1280, false
			a[1].Status.Reason = "derived limit of 640 tokens is below the promise of 1280"
			a[1].Passing = false
			return a
		}, "missing, listed p, ready p, limits p, limits r"},
		{"the router one token over the largest pair", func(a []doctor.Said) []doctor.Said { a[0] = router("r", 641); return a }, "limits r"},
		{"a router that says no promise", func(a []doctor.Said) []doctor.Said { a[0].Meta = nil; return a }, "answer r"},
		{"a worker that says no limit", func(a []doctor.Said) []doctor.Said { a[2].Status.LimitTokens = 0; return a }, "answer d, limits r"},
		{"a worker that does not answer", func(a []doctor.Said) []doctor.Said { a[1].Status, a[1].Err = nil, "deadline"; return a }, "answer p, pairs d, limits r"},
		{"a worker that is silent about itself", func(a []doctor.Said) []doctor.Said { a[1].Status = nil; return a }, "answer p, pairs d, limits r"},
		{"a worker of another name", func(a []doctor.Said) []doctor.Said { a[1].Status.Id = "x"; return a }, "answer p"},
		{"guards off", func(a []doctor.Said) []doctor.Said { a[2].Status.GuardsOn = false; return a }, "guards d"},
		{"attached to an instance that is gone", func(a []doctor.Said) []doctor.Said { a[1].Status.BrokerInstance = []byte("old"); return a }, "attached p"},
		{"another pool than the broker's", func(a []doctor.Said) []doctor.Said { a[3].Broker.Pool.Pages = 9; return a }, "attached p"},
		{"a broker that does not answer", func(a []doctor.Said) []doctor.Said { a[3].Broker, a[3].Err = nil, "refused"; return a }, "answer bp, attached p"},
		{"prefill of another layout", func(a []doctor.Said) []doctor.Said { a[1].Status.LayoutHash = []byte("l2"); return a },
			"compatible p, pairs p, pairs d, limits r"},
		{"both at other weights than the router", func(a []doctor.Said) []doctor.Said {
			for _, i := range []int{1, 2} {
				a[i].Status.ModelRevision = []byte("w2")
			}
			for _, i := range []int{3, 4} {
				a[i].Broker.Identity.ModelRevision = []byte("w2")
			}
			return a
		}, "limits r"},
		{"numerics classes differ", func(a []doctor.Said) []doctor.Said {
			a[2].Status.NumericsClass, a[4].Broker.Identity.NumericsClass = "cuda-1", "cuda-1"
			return a
		}, "pairs p, pairs d, limits r"},
	} {
		t.Run(c.why, func(t *testing.T) {
			r := doctor.Examine(c.change(healthy()), nil)
			var got []string
			for _, f := range r.Findings {
				got = append(got, strings.TrimSpace(f.Check+" "+f.ID))
				if f.Text == "" {
					t.Errorf("%s has no text", f.Check)
				}
			}
			if strings.Join(got, ", ") != c.want || r.OK != (c.want == "") {
				t.Errorf("findings %q (ok %v), want %q\n%+v", strings.Join(got, ", "), r.OK, c.want, r.Findings)
			}
		})
	}
}

func TestTheNumbersOfAGapAreSaid(t *testing.T) {
	a := healthy()
	a[1].Status.PromisedTokens = 1048576
	a[1].Status.LimitTokens = 681280
	r := doctor.Examine(a, nil)
	if text := fmt.Sprint(r.Findings); !strings.Contains(text, "1048576") || !strings.Contains(text, "681280") {
		t.Errorf("%s lacks one of the two numbers", text)
	}
}

func TestWanted(t *testing.T) {
	for _, c := range []struct {
		want doctor.Wanted
		ok   bool
	}{{nil, true}, {doctor.Wanted{"prefill": 1}, true}, {doctor.Wanted{"prefill": 2}, false}, {doctor.Wanted{"registry": 1}, false}} {
		if r := doctor.Examine(healthy(), c.want); r.OK != c.ok {
			t.Errorf("%v: %v, want ok %v", c.want, r.Findings, c.ok)
		}
	}
	if r := doctor.Examine(healthy()[1:], doctor.Wanted{"router": 0}); len(r.Findings) != 0 {
		t.Errorf("a mesh that wants no router: %v", r.Findings)
	}
}

func TestEffectiveIsTheLeastOfTheReadyPairs(t *testing.T) {
	a := append(healthy(), worker("prefill", "q", "bd", 1280, 1280))
	r := doctor.Examine(a, nil)
	var got []string
	for _, p := range r.Pairs {
		got = append(got, fmt.Sprint(p.Prefill, p.Decode, " ", p.Mover, " ", p.Effective))
	}
	if strings.Join(got, ", ") != "pd grpc 640, qd local 640" || r.Effective != 640 || r.Largest != 640 {
		t.Errorf("%q, effective %d, largest %d", got, r.Effective, r.Largest)
	}
}

// What a person and a script get, as committed.
func TestPrint(t *testing.T) {
	a := healthy()
	a[1].Status.PromisedTokens, a[1].Status.Ready, a[1].Passing = 1280, false, false
	a[1].Status.Reason = "derived limit of 640 tokens\nis below the promise of 1280"
	r := doctor.Examine(a, nil)
	var out bytes.Buffer
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/gap.txt")
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("Print gave\n%s\nwant\n%s", out.String(), want)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back doctor.Report
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(r, back) {
		t.Errorf("JSON does not come back: %v\n%+v\nwant\n%+v", err, back, r)
	}
	for _, field := range []string{`"ok":false`, `"promise_tokens":1280`, `"derived_tokens":640`, `"effective_tokens":0`, `"check":"limits"`} {
		if !bytes.Contains(b, []byte(field)) {
			t.Errorf("JSON lacks %s", field)
		}
	}
}
