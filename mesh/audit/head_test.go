package audit

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
)

func TestHeadIsItsSignersWord(t *testing.T) {
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	stranger, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := sign(key, headBody{Service: "router", Instance: "r1", Seq: 5, Hash: Hash{9}, Time: noon})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Check(stranger, pub); err != nil {
		t.Errorf("as signed: %v", err)
	}
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := ParseHead(text); err != nil || back.Check(pub) != nil {
		t.Errorf("through JSON: %v, %v", err, back.Check(pub))
	}
	for _, c := range []struct {
		why    string
		change func(*Head)
		keys   []ed25519.PublicKey
	}{
		{"another service", func(h *Head) { h.Service = "decode" }, []ed25519.PublicKey{pub}},
		{"another instance", func(h *Head) { h.Instance = "r2" }, []ed25519.PublicKey{pub}},
		{"a lower record", func(h *Head) { h.Seq = 4 }, []ed25519.PublicKey{pub}},
		{"another hash", func(h *Head) { h.Hash[0]++ }, []ed25519.PublicKey{pub}},
		{"another time", func(h *Head) { h.Time = h.Time.Add(1) }, []ed25519.PublicKey{pub}},
		{"another key's name", func(h *Head) { h.Key = KeyID(stranger) }, []ed25519.PublicKey{pub, stranger}},
		{"no signature", func(h *Head) { h.Sig = nil }, []ed25519.PublicKey{pub}},
		{"another signature", func(h *Head) { h.Sig = append([]byte{h.Sig[0] ^ 1}, h.Sig[1:]...) }, []ed25519.PublicKey{pub}},
		{"no key to check with", func(*Head) {}, nil},
		{"a stranger's key", func(*Head) {}, []ed25519.PublicKey{stranger}},
	} {
		changed := h
		c.change(&changed)
		if err := changed.Check(c.keys...); errs.KindOf(err) != errs.Corrupt {
			t.Errorf("%s: %v, want corrupt", c.why, err)
		}
	}
}

func TestParseHeadRefuses(t *testing.T) {
	good := `{"service":"a","instance":"b","seq":1,"hash":"` + strings.Repeat("0", 64) + `","time":"2026-11-30T12:00:00Z","key":"k","sig":"AA=="}`
	if _, err := ParseHead([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "{}", good[:len(good)-1], good + " ", strings.Replace(good, `"seq":1`, `"seq":0`, 1),
		strings.Replace(good, `"seq":1`, `"seq":1,"seq":1`, 1), strings.Replace(good, `"key"`, `"more":1,"key"`, 1)} {
		if _, err := ParseHead([]byte(bad)); errs.KindOf(err) != errs.Corrupt {
			t.Errorf("%s: %v, want corrupt", bad, err)
		}
	}
}
