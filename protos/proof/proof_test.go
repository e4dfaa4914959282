package proof

import (
	"bytes"
	"crypto/ed25519"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func TestPages(t *testing.T) {
	for _, tt := range []struct{ n, from, want uint32 }{
		{0, 0, 0}, {0, 5, 0}, {1, 0, 0}, {2, 0, 1}, {64, 0, 1}, {65, 0, 1}, {66, 0, 2}, {129, 0, 2}, {130, 0, 3}, {2000, 0, 32},
		{2, 1, 0}, {65, 63, 1}, {65, 64, 0}, {66, 64, 1}, {130, 64, 2}, {130, 128, 1}, {130, 129, 0}, {130, 4000, 0},
		{math.MaxUint32, 0, 1 << 26}, {math.MaxUint32 - 61, 0, 1 << 26}, {math.MaxUint32 - 62, 0, 1<<26 - 1},
		{math.MaxUint32, math.MaxUint32 - 2, 1},
	} {
		if got := Pages(tt.n, tt.from); got != tt.want {
			t.Errorf("Pages(%d, %d) = %d, want %d", tt.n, tt.from, got, tt.want)
		}
	}
	for n := uint32(1); n < 300; n++ { // by counting the pages that rows fall into
		for from := range n {
			seen := map[uint32]bool{}
			for row := from; row < n-1; row++ {
				seen[row/64] = true
			}
			if got := Pages(n, from); got != uint32(len(seen)) {
				t.Fatalf("Pages(%d, %d) = %d, its rows are in %d", n, from, got, len(seen))
			}
		}
	}
}

// TestPromptDigestSeparates: no two different inputs share a digest because their bytes run together.
func TestPromptDigestSeparates(t *testing.T) {
	seen := map[string]string{}
	for name, d := range map[string][]byte{
		"base":               PromptDigest([]byte{1, 2}, "ab", []byte{3}, []int32{4, 5}),
		"nonce grows":        PromptDigest([]byte{1, 2, 'a'}, "b", []byte{3}, []int32{4, 5}),
		"tenant grows":       PromptDigest([]byte{1, 2}, "ab\x03", nil, []int32{4, 5}),
		"no tenant":          PromptDigest([]byte{1, 2, 'a', 'b'}, "", []byte{3}, []int32{4, 5}),
		"ids swapped":        PromptDigest([]byte{1, 2}, "ab", []byte{3}, []int32{5, 4}),
		"an id fewer":        PromptDigest([]byte{1, 2}, "ab", []byte{3}, []int32{4}),
		"a zero id more":     PromptDigest([]byte{1, 2}, "ab", []byte{3}, []int32{4, 5, 0}),
		"other revision":     PromptDigest([]byte{1, 2}, "ab", []byte{9}, []int32{4, 5}),
		"ids into revisions": PromptDigest([]byte{1, 2}, "ab", []byte{3, 4, 0, 0, 0}, []int32{5}),
	} {
		if len(d) != 32 || seen[string(d)] != "" {
			t.Errorf("%s: %d bytes, the same as %q", name, len(d), seen[string(d)])
		}
		seen[string(d)] = name
	}
}

var (
	private = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	public  = private.Public().(ed25519.PublicKey)
	ids     = []int32{5, 6, 7}
)

func admission() *meshv1.Admission {
	a := &meshv1.Admission{Id: bytes.Repeat([]byte{1}, 16), Tenant: "acme", Model: "m", ModelRevision: bytes.Repeat([]byte{2}, 32), PromptTokens: 3,
		MaxNewTokens: 4, Nonce: bytes.Repeat([]byte{3}, 16), Prefill: "p0", Decode: "d0", PrefillBroker: "kp", DecodeBroker: "kd",
		Mover: meshv1.Mover_MOVER_GRPC, DeadlineUnixMs: 1}
	a.PromptDigest = PromptDigest(a.Nonce, a.Tenant, a.ModelRevision, ids)
	return a
}

func TestOpenGivesWhatWasSigned(t *testing.T) {
	for _, change := range []func(*meshv1.Admission){
		func(*meshv1.Admission) {},
		func(a *meshv1.Admission) { a.Mover = meshv1.Mover_MOVER_LOCAL },
		func(a *meshv1.Admission) { a.Mover, a.Prefill, a.PrefillBroker = meshv1.Mover_MOVER_NONE, "", "" },
	} {
		a := admission()
		change(a)
		s, err := Sign(private, a)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Sign(private, a)
		if err != nil || !proto.Equal(s, again) {
			t.Errorf("signed twice: %v, %v; %v", s, again, err)
		}
		if got, err := Open(public, s, ids); err != nil || !proto.Equal(got, a) {
			t.Errorf("Open = %v, %v; want %v", got, err, a)
		}
		if got, err := Verify(public, s); err != nil || !proto.Equal(got, a) {
			t.Errorf("Verify = %v, %v; want %v", got, err, a)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	_, otherKey, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(a *meshv1.Admission)                 // before it is signed
		harm   func(s *meshv1.SignedAdmission)           // after
		ids    func(ids []int32) []int32                 // presented
		key    func(ed25519.PublicKey) ed25519.PublicKey // checked with
		kind   errs.Kind
		text   string
	}{
		{name: "no signature", harm: func(s *meshv1.SignedAdmission) { s.Signature = nil }, kind: errs.Corrupt, text: "signature is wrong"},
		{name: "a flipped signature", harm: func(s *meshv1.SignedAdmission) { s.Signature[9] ^= 1 }, kind: errs.Corrupt, text: "signature is wrong"},
		{name: "a flipped admission", harm: func(s *meshv1.SignedAdmission) { s.Admission[30] ^= 1 }, kind: errs.Corrupt, text: "signature is wrong"},
		{name: "a field more", harm: func(s *meshv1.SignedAdmission) { s.Admission = append(s.Admission, 0xf8, 0x06, 1) }, kind: errs.Corrupt,
			text: "signature is wrong"},
		{name: "nothing", harm: func(s *meshv1.SignedAdmission) { s.Admission, s.Signature = nil, nil }, kind: errs.Corrupt, text: "signature is wrong"},
		{name: "another router's key", harm: func(s *meshv1.SignedAdmission) {
			s.Signature = ed25519.Sign(otherKey, append([]byte(admissionContext), s.Admission...))
		}, kind: errs.Corrupt, text: "signature is wrong"},
		{name: "a signature for another use", harm: func(s *meshv1.SignedAdmission) { s.Signature = ed25519.Sign(private, s.Admission) },
			kind: errs.Corrupt, text: "signature is wrong"},
		{name: "signed rubbish", harm: func(s *meshv1.SignedAdmission) {
			s.Admission = []byte{0xff}
			s.Signature = ed25519.Sign(private, append([]byte(admissionContext), s.Admission...))
		}, kind: errs.Invalid, text: "admission: "},
		{name: "no key here", key: func(ed25519.PublicKey) ed25519.PublicKey { return nil }, kind: errs.Internal, text: "public key has 0 bytes"},

		{name: "no id", change: func(a *meshv1.Admission) { a.Id = nil }, kind: errs.Invalid, text: "id has 0 bytes"},
		{name: "a short nonce", change: func(a *meshv1.Admission) { a.Nonce = a.Nonce[1:] }, kind: errs.Invalid, text: "nonce 15"},
		{name: "no weights", change: func(a *meshv1.Admission) { a.ModelRevision = nil }, kind: errs.Invalid, text: "model revision has 0"},
		{name: "no prompt digest", change: func(a *meshv1.Admission) { a.PromptDigest = nil }, kind: errs.Invalid, text: "prompt digest 0"},
		{name: "no tenant", change: func(a *meshv1.Admission) { a.Tenant = "" }, kind: errs.Invalid, text: "tenant"},
		{name: "no decode worker", change: func(a *meshv1.Admission) { a.Decode = "" }, kind: errs.Invalid, text: "decode"},
		{name: "no decode broker", change: func(a *meshv1.Admission) { a.DecodeBroker = "" }, kind: errs.Invalid, text: "decode broker"},
		{name: "no prompt", change: func(a *meshv1.Admission) { a.PromptTokens = 0 }, kind: errs.Invalid, text: "0 prompt tokens"},
		{name: "no answer", change: func(a *meshv1.Admission) { a.MaxNewTokens = 0 }, kind: errs.Invalid, text: "0 new tokens"},
		{name: "no mover", change: func(a *meshv1.Admission) { a.Mover = 0 }, kind: errs.Invalid, text: "MOVER_UNSPECIFIED"},
		{name: "a mover of the future", change: func(a *meshv1.Admission) { a.Mover = 77 }, kind: errs.Invalid, text: "mover 77"},
		{name: "split without prefill", change: func(a *meshv1.Admission) { a.Prefill = "" }, kind: errs.Invalid, text: `prefill ""`},
		{name: "split without its broker", change: func(a *meshv1.Admission) { a.PrefillBroker = "" }, kind: errs.Invalid, text: `broker ""`},
		{name: "unsplit with prefill", change: func(a *meshv1.Admission) { a.Mover = meshv1.Mover_MOVER_NONE }, kind: errs.Invalid, text: "MOVER_NONE"},
		{name: "no deadline", change: func(a *meshv1.Admission) { a.DeadlineUnixMs = 0 }, kind: errs.Invalid, text: "no deadline"},

		{name: "an id fewer", ids: func(ids []int32) []int32 { return ids[1:] }, kind: errs.Corrupt, text: "2 token ids presented, 3 admitted"},
		{name: "no ids", ids: func([]int32) []int32 { return nil }, kind: errs.Corrupt, text: "0 token ids presented"},
		{name: "another id", ids: func([]int32) []int32 { return []int32{5, 6, 8} }, kind: errs.Corrupt, text: "prompt digest differs"},
		{name: "another order", ids: func([]int32) []int32 { return []int32{6, 5, 7} }, kind: errs.Corrupt, text: "prompt digest differs"},
		{name: "a digest of another tenant", change: func(a *meshv1.Admission) { a.Tenant = "globex" }, kind: errs.Corrupt, text: "prompt digest differs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, presented, key := admission(), ids, public
			if tt.change != nil {
				tt.change(a)
			}
			s, err := Sign(private, a)
			if err != nil {
				t.Fatal(err)
			}
			if tt.harm != nil {
				tt.harm(s)
			}
			if tt.ids != nil {
				presented = tt.ids(presented)
			}
			if tt.key != nil {
				key = tt.key(key)
			}
			got, err := Open(key, s, presented)
			if got != nil || errs.KindOf(err) != tt.kind || err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Open = %v, %v (%v), want %v with %q", got, err, errs.KindOf(err), tt.kind, tt.text)
			}
			if _, err := Verify(key, s); (err == nil) != (tt.ids != nil || tt.text == "prompt digest differs") {
				t.Errorf("Verify = %v", err)
			}
		})
	}
	if _, err := Open(public, nil, ids); errs.KindOf(err) != errs.Corrupt {
		t.Errorf("Open(nil) = %v, want Corrupt", err)
	}
	if _, err := Sign(nil, admission()); errs.KindOf(err) != errs.Internal {
		t.Errorf("Sign without a key = %v, want Internal", err)
	}
}

func completion() *brokerv1.Completion {
	return &brokerv1.Completion{AdmissionId: bytes.Repeat([]byte{1}, 16), Lease: bytes.Repeat([]byte{2}, 32), Instance: bytes.Repeat([]byte{3}, 16),
		Epoch: 4, DestinationInstance: bytes.Repeat([]byte{5}, 16), Tenant: "acme", ModelRevision: bytes.Repeat([]byte{6}, 32),
		LayoutHash: bytes.Repeat([]byte{7}, 32), FromToken: 64, Rows: 65, Pages: 2, PromptDigest: bytes.Repeat([]byte{8}, 32),
		Digests: [][]byte{bytes.Repeat([]byte{9}, 16), bytes.Repeat([]byte{10}, 16)}}
}

// TestMACCoversEveryField enumerates the fields from the descriptor, so that a new one cannot be left out.
func TestMACCoversEveryField(t *testing.T) {
	secret := bytes.Repeat([]byte{0x5e}, SecretSize)
	fields := completion().ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		t.Run(string(f.Name()), func(t *testing.T) {
			c := completion()
			if err := Seal(secret, c); err != nil {
				t.Fatal(err)
			}
			change(t, c.ProtoReflect(), f)
			if err := Check(secret, c); errs.KindOf(err) != errs.Corrupt {
				t.Errorf("Check after a change = %v, want Corrupt", err)
			}
			c.ProtoReflect().Clear(f)
			if err := Check(secret, c); errs.KindOf(err) != errs.Corrupt {
				t.Errorf("Check without it = %v, want Corrupt", err)
			}
		})
	}
}

// change one bit of a field.
func change(t *testing.T, m protoreflect.Message, f protoreflect.FieldDescriptor) {
	flip := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[0] ^= 1
		return b
	}
	switch v := m.Get(f); {
	case f.IsList():
		l := m.Mutable(f).List()
		l.Set(0, protoreflect.ValueOfBytes(flip(l.Get(0).Bytes())))
	case f.Kind() == protoreflect.BytesKind:
		m.Set(f, protoreflect.ValueOfBytes(flip(v.Bytes())))
	case f.Kind() == protoreflect.StringKind:
		m.Set(f, protoreflect.ValueOfString(v.String()+"x"))
	case f.Kind() == protoreflect.Uint32Kind:
		m.Set(f, protoreflect.ValueOfUint32(uint32(v.Uint())+1))
	case f.Kind() == protoreflect.Uint64Kind:
		m.Set(f, protoreflect.ValueOfUint64(v.Uint()+1))
	default:
		t.Fatalf("field of kind %v: teach this test to change it", f.Kind())
	}
}

func TestCheckRefuses(t *testing.T) {
	secret := bytes.Repeat([]byte{0x5e}, SecretSize)
	for _, tt := range []struct {
		name   string
		secret []byte
		change func(c *brokerv1.Completion)
		text   string
	}{
		{"no secret", nil, nil, "secret of 0"},
		{"another secret", bytes.Repeat([]byte{1}, SecretSize), nil, "MAC differs"},
		{"digests swapped", secret, func(c *brokerv1.Completion) { c.Digests[0], c.Digests[1] = c.Digests[1], c.Digests[0] }, "MAC differs"},
		{"a digest twice", secret, func(c *brokerv1.Completion) { c.Digests[1] = c.Digests[0] }, "MAC differs"},
		{"a digest more", secret, func(c *brokerv1.Completion) { c.Digests = append(c.Digests, c.Digests[0]) }, "MAC differs"},
		{"two digests run together", secret, func(c *brokerv1.Completion) {
			c.Digests = [][]byte{append(bytes.Clone(c.Digests[0]), c.Digests[1]...)}
		}, "digest 0 has 32 bytes"},
		{"a tenant that is no text", secret, func(c *brokerv1.Completion) { c.Tenant = "\xff" }, "completion MAC"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := completion()
			if err := Seal(secret, c); err != nil {
				t.Fatal(err)
			}
			if tt.change != nil {
				tt.change(c)
			}
			before := proto.Clone(c)
			err := Check(tt.secret, c)
			if errs.KindOf(err) != errs.Corrupt || err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Check = %v, want Corrupt with %q", err, tt.text)
			}
			if !proto.Equal(before, c) {
				t.Error("Check changed the completion")
			}
		})
	}
	if err := Check(secret, nil); errs.KindOf(err) != errs.Corrupt {
		t.Errorf("Check(nil) = %v, want Corrupt", err)
	}
	// A root that does not belong to the digests, under a MAC that its sender made for it.
	c := completion()
	c.Root = bytes.Repeat([]byte{1}, 32)
	mac, err := completionMAC(secret, c)
	if err != nil {
		t.Fatal(err)
	}
	c.Mac = mac
	if err := Check(secret, c); errs.KindOf(err) != errs.Corrupt || !strings.Contains(err.Error(), "root differs") {
		t.Errorf("Check of a wrong root = %v, want Corrupt", err)
	}
}

func TestSealNeedsASecret(t *testing.T) {
	c := completion()
	if err := Seal([]byte("short"), c); errs.KindOf(err) != errs.Internal || c.Mac != nil {
		t.Errorf("Seal with a short secret = %v, MAC %x", err, c.Mac)
	}
	c.Tenant = "\xff"
	if err := Seal(NewSecret(), c); err == nil || c.Mac != nil {
		t.Errorf("Seal of a tenant that is no text = %v, MAC %x", err, c.Mac)
	}
}

func TestRandomNames(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		id, secret := NewID(), NewSecret()
		if len(id) != IDSize || len(secret) != SecretSize || seen[string(id)] || seen[string(secret)] {
			t.Fatalf("id %x, secret of %d bytes", id, len(secret))
		}
		seen[string(id)], seen[string(secret)] = true, true
	}
	if h := LeaseHash([]byte("abc")); h[0] != 0xba || h[31] != 0xad || len(h) != 32 { // SHA-256, FIPS 180-2 example
		t.Errorf("LeaseHash = %x", h)
	}
}

// FuzzOpen: nothing but what the router signed opens, and no bytes make it crash.
func FuzzOpen(f *testing.F) {
	s, err := Sign(private, admission())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.Admission, s.Signature)
	f.Add([]byte{}, s.Signature)
	f.Add(s.Admission, []byte{})
	f.Fuzz(func(t *testing.T, a, sig []byte) {
		got, err := Open(public, &meshv1.SignedAdmission{Admission: a, Signature: sig}, ids)
		if same := bytes.Equal(a, s.Admission) && bytes.Equal(sig, s.Signature); same != (err == nil) || (got == nil) != (err != nil) {
			t.Errorf("Open = %v, %v; genuine: %v", got, err, same)
		}
	})
}
