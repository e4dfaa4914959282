package registry

import (
	"fmt"
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
)

func TestValidate(t *testing.T) {
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprint(i)] = ""
	}
	for _, c := range []struct {
		why    string
		change func(*Instance)
		ok     bool
	}{
		{"a plain instance is fine", func(*Instance) {}, true},
		{"IPv6 is fine", func(in *Instance) { in.Address = "[::1]:7000" }, true},
		{"a host name is fine", func(in *Instance) { in.Address = "decode.internal:7000" }, true},
		{"values may hold any text", func(in *Instance) { in.Meta = map[string]string{"broker": "kv/0 ü"} }, true},
		{"512 bytes of value are the most", func(in *Instance) { in.Meta = map[string]string{"k": strings.Repeat("x", 512)} }, true},
		{"no service", func(in *Instance) { in.Service = "" }, false},
		{"no id", func(in *Instance) { in.ID = "" }, false},
		{"a slash in the id", func(in *Instance) { in.ID = "a/b" }, false},
		{"no address", func(in *Instance) { in.Address = "" }, false},
		{"no port", func(in *Instance) { in.Address = "127.0.0.1" }, false},
		{"port 0, of a listener that is not open yet", func(in *Instance) { in.Address = "127.0.0.1:0" }, false},
		{"a port too large", func(in *Instance) { in.Address = "127.0.0.1:65536" }, false},
		{"a named port", func(in *Instance) { in.Address = "127.0.0.1:http" }, false},
		{"no host", func(in *Instance) { in.Address = ":7000" }, false},
		{"65 pairs", func(in *Instance) { in.Meta = many }, false},
		{"an empty key", func(in *Instance) { in.Meta = map[string]string{"": "x"} }, false},
		{"a dot in a key", func(in *Instance) { in.Meta = map[string]string{"a.b": "x"} }, false},
		{"a key too long", func(in *Instance) { in.Meta = map[string]string{strings.Repeat("k", 129): "x"} }, false},
		{"a value too long", func(in *Instance) { in.Meta = map[string]string{"k": strings.Repeat("x", 513)} }, false},
		{"a value that is no text", func(in *Instance) { in.Meta = map[string]string{"k": "\xff"} }, false},
	} {
		in := Instance{Service: "decode", ID: "d1", Address: "127.0.0.1:7000"}
		c.change(&in)
		err := Validate(in)
		if (err == nil) != c.ok || err != nil && errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	if ValidateService("decode") != nil || ValidateService("") == nil {
		t.Error("ValidateService: want decode accepted and the empty name refused")
	}
}

func TestEqualAndCompare(t *testing.T) {
	a := Instance{Service: "decode", ID: "d1", Address: "127.0.0.1:7000", Meta: map[string]string{"k": "v"}}
	for why, change := range map[string]func(*Instance){
		"service": func(in *Instance) { in.Service = "prefill" },
		"id":      func(in *Instance) { in.ID = "d2" },
		"address": func(in *Instance) { in.Address = "127.0.0.1:7001" },
		"meta":    func(in *Instance) { in.Meta = map[string]string{"k": "w"} },
	} {
		b := a
		change(&b)
		if a.Equal(b) || b.Equal(a) {
			t.Errorf("instances that differ in %s are equal", why)
		}
		if ordered := Compare(a, b) != 0; ordered != (why == "service" || why == "id") {
			t.Errorf("Compare of instances that differ in %s = %d", why, Compare(a, b))
		}
	}
	same := a
	same.Meta = map[string]string{"k": "v"}
	if !a.Equal(same) || Compare(a, same) != 0 {
		t.Error("an instance differs from its copy")
	}
}
