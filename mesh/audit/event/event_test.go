package event

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// every is one event of each kind, with every field set.
func every(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, e := range []interface{ Kind() string }{&BrokerStarted{}, &LeaseGranted{}, &LeaseOwned{}, &PagesZeroed{}, &LateWrite{}, &TransferFailed{},
		&SourceChanged{}, &Fault{}, &PrefillVerdict{}, &DecodeVerdict{}, &DecodeFinished{}, &HalfFailed{}, &Faults{}, &Admission{}, &Response{},
		&Disagreement{}, &Retry{}, &Incident{}} {
		fill(reflect.ValueOf(e).Elem())
		out[e.Kind()] = reflect.ValueOf(e).Elem().Interface()
	}
	for _, k := range []string{KindLeaseFinished, KindLeaseHandedOver, KindLeaseReleased, KindLeaseQuarantined, KindLeaseProven} {
		l := Lease{}
		fill(reflect.ValueOf(&l).Elem())
		l.As = k
		out[k] = l
	}
	return out
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i))
		}
	case reflect.String:
		v.SetString("word")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	default:
		v.SetUint(3)
	}
}

func TestEveryKindComesBackAsItWas(t *testing.T) {
	all := every(t)
	if len(all) != 23 {
		t.Errorf("%d kinds, want 23", len(all))
	}
	for kind, e := range all {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(kind, text)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if diff := cmp.Diff(e, back); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
		more := `{"prompt":"x",` + string(text[1:])
		if _, err := Decode(kind, []byte(more)); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s with a field too many: %v, want invalid", kind, err)
		}
	}
	for _, kind := range []string{"", "lease", "lease.granted ", "audit.opened"} {
		if _, err := Decode(kind, []byte("{}")); errs.KindOf(err) != errs.Invalid {
			t.Errorf("kind %q: %v, want invalid", kind, err)
		}
	}
}

// TestNoFieldIsForText: what an event can hold is in this list, so that a field for text is a change that a reader sees.
func TestNoFieldIsForText(t *testing.T) {
	words := "about admission as attempt broker choices completion_tokens count decode decode_broker detector endpoint epoch error expected fault field " +
		"finish_reason from got guards_on half instance internal lease length logit_digest max_new_tokens model moved mover number generation outcome " +
		"output_digest page pages place prefill prefill_broker prompt_digest prompt_tokens property reason records request result role root route rows " +
		"source_epoch source_instance source_lease start_unix_ms stream suspects tenant total_us unsplit verdicts_equal want what worker write"
	known := map[string]bool{}
	for _, w := range strings.Fields(words) {
		known[w] = true
	}
	var look func(reflect.Type)
	look = func(v reflect.Type) {
		for v.Kind() == reflect.Slice {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return
		}
		for i := range v.NumField() {
			f := v.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				name = strings.ToLower(f.Name)
			}
			if !known[name] {
				t.Errorf("%s.%s is in no list", v, name)
			}
			look(f.Type)
		}
	}
	for _, e := range every(t) {
		look(reflect.TypeOf(e))
	}
}

func TestPagesInJSON(t *testing.T) {
	for _, c := range []struct {
		text  string
		pages Pages
	}{
		{"[]", Pages{}},
		{"[[5,5,0]]", Pages{{5, 0}}},
		{"[[5,7,0]]", Pages{{5, 0}, {6, 0}, {7, 0}}},
		{"[[7,5,10]]", Pages{{7, 10}, {6, 12}, {5, 14}}},
		{"[[1,2,10],[3,3,15]]", Pages{{1, 10}, {2, 12}, {3, 15}}},
		{"[[1,2,10],[1,1,14]]", Pages{{1, 10}, {2, 12}, {1, 14}}},
		{"[[1,1,0],[2,2,7]]", Pages{{1, 0}, {2, 7}}},
		{"[[4,4,9],[8,8,11]]", Pages{{4, 9}, {8, 11}}},
	} {
		text, err := json.Marshal(c.pages)
		if err != nil || string(text) != c.text {
			t.Errorf("%v: %s, %v, want %s", c.pages, text, err, c.text)
		}
		var back Pages
		if err := json.Unmarshal([]byte(c.text), &back); err != nil || !cmp.Equal(back, c.pages) {
			t.Errorf("%s: %v, %v, want %v", c.text, back, err, c.pages)
		}
	}
	for _, bad := range []string{`[[1,2]`, `[[-1,2,3]]`, `[[0,67108864,0]]`, `{"a":1}`, `[["a",1,2]]`, `[[0,67108863,0],[0,0,0]]`} {
		var p Pages
		if err := json.Unmarshal([]byte(bad), &p); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	if diff := cmp.Diff(Pages{{3, 0}, {1, 0}}, Numbered([]uint32{3, 1})); diff != "" {
		t.Error(diff)
	}
}

func FuzzPages(f *testing.F) {
	f.Add(uint32(5), uint32(7), uint64(3), uint32(1))
	f.Fuzz(func(t *testing.T, first, second uint32, generation uint64, n uint32) {
		var p Pages
		for i := range n % 50 {
			p = append(p, Page{(first + i*second) % maxPages, generation + uint64(i)*GenerationStep})
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back Pages
		if err := json.Unmarshal(text, &back); err != nil || len(back) != len(p) {
			t.Fatalf("%s: %v, %d pages, want %d", text, err, len(back), len(p))
		}
		for i := range p {
			if back[i] != p[i] {
				t.Fatalf("page %d is %v, was %v", i, back[i], p[i])
			}
		}
	})
}

func TestReasonsAreClipped(t *testing.T) {
	if got := Reason(errors.New(strings.Repeat("é", 400))); len(got) > MaxReason || !utf8.ValidString(got) || !strings.HasPrefix(got, "éé") {
		t.Errorf("%d bytes, valid: %v", len(got), utf8.ValidString(got))
	}
	if Reason(nil) != "" || Reason(errors.New("short")) != "short" {
		t.Error("a short reason is not what it was")
	}
}

func TestVerdictsInHex(t *testing.T) {
	p := PrefillSaid("a", &meshv1.PrefillVerdict{AdmissionId: []byte{1}, LeaseHash: []byte{2}, Instance: []byte{3}, Epoch: 4, PromptDigest: []byte{5}, FromToken: 6, Rows: 7, Pages: 8, Root: []byte{9}})
	if diff := cmp.Diff(PrefillVerdict{Admission: "01", Tenant: "a", Lease: "02", Instance: "03", Epoch: 4, PromptDigest: "05", From: 6, Rows: 7, Pages: 8, Root: "09"}, p); diff != "" {
		t.Error(diff)
	}
	d := DecodeSaid("a", &meshv1.DecodeVerdict{AdmissionId: []byte{1}, LeaseHash: []byte{2}, SourceLeaseHash: []byte{3}, SourceInstance: []byte{4}, SourceEpoch: 5,
		PromptDigest: []byte{6}, FromToken: 7, Rows: 8, Pages: 9, ExpectedPages: 10, Root: []byte{11}, Unsplit: true})
	if diff := cmp.Diff(DecodeVerdict{Admission: "01", Tenant: "a", Lease: "02", SourceLease: "03", SourceInstance: "04", SourceEpoch: 5, PromptDigest: "06",
		From: 7, Rows: 8, Pages: 9, Expected: 10, Root: "0b", Unsplit: true}, d); diff != "" {
		t.Error(diff)
	}
}

func TestPairs(t *testing.T) {
	if a, c := (Admission{Prefill: "p", Decode: "d"}).Pair(), (Choice{Decode: "d"}).Pair(); a != "p/d" || c != "/d" {
		t.Errorf("%s, %s", a, c)
	}
}
