package haul

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"leasehold.dev/protos/errs"
)

// PerfTest is one test of ucx_perftest, over the transports named; "": those that it chooses. It sends one buffer of a page's
// size again and again, so it is in the caches as no list of pages is; and it looks at no content.
func PerfTest(row, test, transports string) Maker {
	return Maker{Name: row, Checked: "not: the tool moves one buffer and compares nothing", Open: func(_ context.Context, l Load) (Way, error) {
		path, err := exec.LookPath("ucx_perftest")
		if err != nil {
			return nil, errs.New(errs.NotFound, "ucx_perftest is not installed: %w", err)
		}
		env := append(os.Environ(), "UCX_NET_DEVICES=lo", "UCX_WARN_UNUSED_ENV_VARS=n")
		if transports != "" {
			env = append(env, "UCX_TLS="+transports)
		}
		return &perfTest{path: path, test: test, env: env, load: l}, nil
	}}
}

type perfTest struct {
	path, test string
	env        []string
	load       Load
}

// Run implements Way: a server and a client, of which the client prints the rate.
func (p *perfTest) Run(ctx context.Context) (Timing, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	port, err := freePort(ctx)
	if err != nil {
		return Timing{}, err
	}
	server := p.command(ctx, "-p", port)
	if err := server.Start(); err != nil {
		return Timing{}, err
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	var out []byte
	for { // the server says nothing when it listens
		out, err = p.command(ctx, "127.0.0.1", "-p", port, "-t", p.test, "-s", strconv.Itoa(p.load.PageBytes), "-n", strconv.Itoa(p.load.Pages()),
			"-w", strconv.Itoa(max(4, p.load.Pages()/8)), "-f").CombinedOutput()
		if err == nil || ctx.Err() != nil || !bytes.Contains(out, []byte("onnect")) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		return Timing{}, fmt.Errorf("ucx_perftest: %w: %s", err, tail(string(out)))
	}
	return p.timing(string(out))
}

func (p *perfTest) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Env = p.env
	return cmd
}

// timing reads the last line of numbers: iterations, three latencies in us, average and overall MiB/s, two message rates.
func (p *perfTest) timing(out string) (Timing, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	f := strings.Fields(lines[len(lines)-1])
	if len(f) != 8 {
		return Timing{}, errs.New(errs.Internal, "ucx_perftest printed %q, want 8 numbers", lines[len(lines)-1])
	}
	rate, err := strconv.ParseFloat(f[5], 64)
	if err != nil || rate <= 0 {
		return Timing{}, errs.New(errs.Internal, "ucx_perftest printed a rate of %q", f[5])
	}
	return Timing{Moved: time.Duration(float64(p.load.Size()) / (rate * (1 << 20)) * float64(time.Second))}, nil
}

func freePort(ctx context.Context) (string, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, err
}

// Clear implements Way.
func (p *perfTest) Clear(context.Context) error { return nil }

// Check implements Way.
func (p *perfTest) Check(context.Context) error { return nil }

// Close implements Way.
func (p *perfTest) Close() error { return nil }
