package decode

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/gpu/tinymodel"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
)

// The whole process: it gets ready, answers over gRPC, and ends cleanly when it is told to.
func TestTheProcessServesAndDrains(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	addrs := filepath.Join(t.TempDir(), "addrs")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, []string{"-insecure", "-id", "d0", "-addr-file", addrs, "-model", g.model, "-backend", backend, "-broker-dir", g.nodes["b0"].dir,
			"-admission-key", g.keyFile, "-promise", "512", "-threads", "1", "-log-level", "error", "-drain", "5s"})
	}()
	conn, err := grpc.NewClient(address(t, addrs, ended), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	watching, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := decodev1.NewDecodeServiceClient(conn).Watch(watching, &decodev1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		r, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if s := r.Status; s.Ready {
			if s.Id != "d0" || s.Broker != "b0" || s.LimitTokens != 16*64 || s.PromisedTokens != 512 || len(s.Movers) != 2 {
				t.Errorf("status is %v", s)
			}
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v, want a clean end", err)
	}
}

// address waits for the address file of a process that has not ended.
func address(t *testing.T, file string, ended <-chan error) string {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			t.Fatalf("the process ended: %v", err)
		case <-tick.C:
		}
		b, err := os.ReadFile(file)
		var a struct{ GRPC string }
		if err == nil && json.Unmarshal(b, &a) == nil && a.GRPC != "" {
			return a.GRPC
		}
	}
}

func TestTheProcessRefusesWrongFlags(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"an argument too many": {[]string{"serve"}, `unexpected argument "serve"`},
		"no identity":          {nil, "-identity is needed"},
		"no model":             {[]string{"-insecure", "-id", "d0"}, "-model, -broker-dir and -admission-key are needed"},
	} {
		if err := Run(context.Background(), tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Run = %v, want ...%s...", name, err, tt.want)
		}
	}
}
