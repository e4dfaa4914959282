package kvbroker

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
)

func pemOf(t *testing.T, key any) string {
	t.Helper()
	b, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: b}))
}

func TestParseKey(t *testing.T) {
	pub, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, text string
		ok         bool
	}{
		{"PEM", pemOf(t, pub), true},
		{"base64", base64.StdEncoding.EncodeToString(pub), true},
		{"base64 with a line end", base64.StdEncoding.EncodeToString(pub) + "\n", true},
		{"an ECDSA key", pemOf(t, &other.PublicKey), false},
		{"PEM of nothing", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", false},
		{"31 bytes", base64.StdEncoding.EncodeToString(pub[:31]), false},
		{"nothing", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseKey([]byte(tt.text))
			if (err == nil) != tt.ok || tt.ok && !pub.Equal(got) {
				t.Errorf("parseKey = %x, %v, want ok %v", got, err, tt.ok)
			}
		})
	}
}

func TestParse(t *testing.T) {
	good := []string{"-id", "b0", "-insecure", "-model", "m.gguf", "-dir", "run", "-admission-key", "k", "-pages", "8"}
	f, err := parse(good)
	if err != nil {
		t.Fatal(err)
	}
	if f.mesh.ID != "b0" || f.pages != 8 || f.backend != "cpu" || f.checkShare != 0.05 || f.quota != 0 {
		t.Errorf("parse = %+v", f)
	}
	for name, args := range map[string][]string{
		"no model":             {"-dir", "run", "-admission-key", "k", "-pages", "8"},
		"no pages":             good[:9],
		"an argument":          append(good[:11:11], "extra"),
		"an unknown flag":      append(good[:11:11], "-fast"),
		"a pool of 2^27 pages": append(good[:11:11], "-pages", "134217728"),
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%s: parse takes %s", name, strings.Join(args, " "))
		}
	}
	f.keyFile = "absent"
	if _, err := f.server(); errs.KindOf(err) != errs.Invalid {
		t.Errorf("server with an absent key file = %v, want invalid", err)
	}
}
