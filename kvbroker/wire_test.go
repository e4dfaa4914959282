package kvbroker

import (
	"net"
	"testing"

	"leasehold.dev/kvbroker/server"
	"leasehold.dev/protos/errs"
)

func TestWhereRawLanesAreServed(t *testing.T) {
	for _, tt := range []struct {
		name, setting, served, advertised string
		insecure                          bool
		host                              string // announced; empty: none
		want                              errs.Kind
	}{
		{"where gRPC is", "auto", "127.0.0.1:7000", "", false, "127.0.0.1", 0},
		{"where gRPC is advertised", "auto", "0.0.0.0:7000", "b0.example:7000", false, "b0.example", 0},
		{"where it is told to", "127.0.0.1:0", "127.0.0.2:7000", "b0.example:7000", false, "127.0.0.1", 0},
		{"on every address, as gRPC is advertised", "0.0.0.0:0", "0.0.0.0:7000", "b0.example:7000", false, "b0.example", 0},
		{"in plain text on loopback", "auto", "127.0.0.1:7000", "", true, "127.0.0.1", 0},
		{"nowhere", "", "127.0.0.1:7000", "", false, "", 0},
		{"in plain text for other hosts", "0.0.0.0:0", "127.0.0.1:7000", "", true, "", errs.Invalid},
		{"on no address", "127.0.0.1", "127.0.0.1:7000", "", false, "", errs.Invalid},
	} {
		var c server.Config
		err := listenData(tt.setting, tt.served, tt.advertised, tt.insecure, &c)
		if (err != nil) != (tt.want != 0) || err != nil && errs.KindOf(err) != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
		if host, _, _ := net.SplitHostPort(c.DataAddress); host != tt.host || (c.Data != nil) != (tt.host != "") {
			t.Errorf("%s: announced %q, want host %q", tt.name, c.DataAddress, tt.host)
		}
		if c.Data != nil {
			c.Data.Close()
		}
	}
}
