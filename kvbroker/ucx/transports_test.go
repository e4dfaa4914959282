package ucx

import (
	"slices"
	"testing"

	"leasehold.dev/protos/errs"
)

func TestTransports(t *testing.T) {
	for _, tt := range []struct {
		name  string
		list  []string
		plain bool
		want  errs.Kind
	}{
		{"shared memory", []string{"posix", "cma"}, false, 0},
		{"hardware", []string{"rc", "cuda_copy", "cuda_ipc"}, false, 0},
		{"tcp with the tests' flag", []string{"tcp"}, true, 0},
		{"tcp without it", []string{"tcp"}, false, errs.Denied},
		{"tcp beside others", []string{"posix", "tcp"}, false, errs.Denied},
		{"dc, also in tests", []string{"dc"}, true, errs.Denied},
		{"dc by its other name", []string{"rc", "dc_mlx5"}, false, errs.Denied},
		{"datagrams", []string{"ud"}, false, errs.Denied},
		{"an alias", []string{"all"}, false, errs.Denied},
		{"another", []string{"sm"}, false, errs.Denied},
		{"a negation", []string{"^tcp"}, false, errs.Denied},
		{"two in one", []string{"posix,tcp"}, false, errs.Denied},
		{"a mapping of everything", []string{"xpmem"}, false, errs.Denied},
		{"an empty name", []string{""}, false, errs.Denied},
		{"one twice", []string{"posix", "posix"}, false, errs.Invalid},
		{"none", nil, true, errs.Invalid},
	} {
		err := checkTransports(tt.list, tt.plain)
		if tt.want == 0 && err != nil || tt.want != 0 && (err == nil || errs.KindOf(err) != tt.want) {
			t.Errorf("%s: checkTransports(%q) = %v, want %v", tt.name, tt.list, err, tt.want)
		}
	}
}

func TestTheReceiverReads(t *testing.T) {
	s := settings([]string{"rc", "posix"}, loopback)
	for k, v := range map[string]string{"TLS": "rc,posix", "RNDV_SCHEME": "get_zcopy", "KEEPALIVE_INTERVAL": "200ms"} {
		if i := slices.Index(s, k); i < 0 || s[i+1] != v {
			t.Errorf("settings %q: %s is not %s", s, k, v)
		}
	}
	if slices.Contains(s, "NET_DEVICES") || !slices.Contains(settings([]string{tcp}, "eth7"), "eth7") {
		t.Error("tcp, and only it, has an interface")
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(make([]byte, headerSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerSize {
			return
		}
		in := [headerSize]byte(b)
		if out := headerIn(in).bytes(); out != in {
			t.Errorf("%x comes back as %x", in, out)
		}
	})
}
