package kvbroker

import (
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
)

func TestParse(t *testing.T) {
	good := []string{"-id", "b0", "-insecure", "-model", "m.gguf", "-dir", "run", "-admission-key", "k", "-pages", "8"}
	f, err := parse(good)
	if err != nil {
		t.Fatal(err)
	}
	if f.mesh.ID != "b0" || f.pages != 8 || f.backend != "cpu" || f.checkShare != 0.05 || f.quota != 0 || f.share != 4 {
		t.Errorf("parse = %+v", f)
	}
	for name, args := range map[string][]string{
		"no model":             {"-dir", "run", "-admission-key", "k", "-pages", "8"},
		"no pages":             good[:9],
		"an argument":          append(good[:11:11], "extra"),
		"an unknown flag":      append(good[:11:11], "-fast"),
		"no lane":              append(good[:11:11], "-pull-lanes", "0"),
		"an unknown framing":   append(good[:11:11], "-lane-framing", "http"),
		"17 lanes":             append(good[:11:11], "-pull-lanes", "17"),
		"a share of 2^27":      append(good[:11:11], "-fair-share", "134217728"),
		"a pool of 2^27 pages": append(good[:11:11], "-pages", "134217728"),
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%s: parse takes %s", name, strings.Join(args, " "))
		}
	}
	for _, m := range []string{"rdma", "shm,", ",", "grpc,shm,grpc2"} {
		if _, err := moversOf(m); errs.KindOf(err) != errs.Invalid {
			t.Errorf("-movers %q = %v, want invalid", m, err)
		}
	}
	if m, err := moversOf("grpc,shm"); len(m) != 2 || err != nil {
		t.Errorf("-movers grpc,shm = %v, %v, want both", m, err)
	}
	if m, err := moversOf(""); m == nil || len(m) != 0 || err != nil {
		t.Errorf("no mover = %v, %v, want an empty list, not the default", m, err)
	}
	if a, err := thisHost(); a == "" || err != nil {
		t.Errorf("thisHost = %q, %v", a, err)
	}
	f.keyFile = "absent"
	if _, err := f.server(); errs.KindOf(err) != errs.Invalid {
		t.Errorf("server with an absent key file = %v, want invalid", err)
	}
}
