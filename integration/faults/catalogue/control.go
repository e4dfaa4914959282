package catalogue

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"leasehold.dev/cli/local"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/fault"
)

// methods are all methods of our services, from their descriptors.
func methods() (all []string) {
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				if strings.HasPrefix(string(s.FullName()), "leasehold.") {
					all = append(all, fmt.Sprintf("/%s/%s", s.FullName(), s.Methods().Get(j).Name()))
				}
			}
		}
		return true
	})
	return all
}

// call makes any method's call with an empty message and returns its code.
func call(ctx context.Context, cc *grpc.ClientConn, method string) codes.Code {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return status.Code(cc.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{}))
}

// c1 calls every method of every process with another service's certificate, and with none; and every route without a key.
func c1(ctx context.Context, m *Mesh) error {
	wrong, err := identity.Load(filepath.Join(m.Dir, "identity", "registry-registry")) // which no method is for
	if err != nil {
		return err
	}
	all := methods()
	if len(all) < 15 {
		return fmt.Errorf("only %d methods were found", len(all))
	}
	denied := map[string]bool{}
	for _, p := range m.Processes() {
		a, err := p.Addr(ctx)
		if err != nil {
			return err
		}
		service, id, _ := strings.Cut(p.Name, "/")
		for what, creds := range map[string]credentials.TransportCredentials{
			"the registry's certificate": wrong.ClientCreds(service, id),
			"no certificate":             credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}),
		} {
			cc, err := grpc.NewClient("passthrough:///"+a.GRPC, grpc.WithTransportCredentials(creds))
			if err != nil {
				return err
			}
			for _, method := range all {
				switch code := call(ctx, cc, method); {
				case code == codes.PermissionDenied || code == codes.Unauthenticated:
					denied[method] = true
				case code == codes.Unimplemented: // it is not served there
				case what == "no certificate" && code == codes.Unavailable: // there is no connection
				default:
					_ = cc.Close()
					return fmt.Errorf("%s with %s at %s: %v", method, what, p.Name, code)
				}
			}
			_ = cc.Close()
		}
	}
	for _, method := range all {
		inner := strings.Contains(method, "PeerService") || strings.Contains(method, "InfoService") || strings.Contains(method, "PrefillService") || strings.Contains(method, "DecodeService")
		if inner && !denied[method] {
			return fmt.Errorf("%s is denied nowhere: is it served?", method)
		}
	}
	for _, route := range []struct{ method, path string }{
		{"GET", "/v1/models"}, {"POST", "/v1/chat/completions"}, {"POST", "/v1/completions"}, {"GET", "/v1/receipts/x"}, {"POST", "/v1/receipts/x/report"},
	} {
		for _, key := range []string{"", "Bearer lh-wrong", "Basic eDp5", "Bearer "} {
			if code, err := m.rest(ctx, route.method, route.path, key, []byte("{}")); err != nil || code != http.StatusUnauthorized {
				return fmt.Errorf("%s %s with key %q: status %d, %w", route.method, route.path, key, code, orNil(err))
			}
		}
	}
	return m.sound(ctx, "after it")
}

func (m *Mesh) rest(ctx context.Context, method, path, auth string, body []byte) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, m.URL()+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// c2 sends what nobody should, by REST and to each method with the right certificate: a typed error, no crash, and not a
// word of it in a log.
func c2(ctx context.Context, m *Mesh) error {
	const secret = "QZXVWORDQZXV"
	key := "Bearer " + m.Key()
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		for name, body := range bodies(m.Loaded.Name, secret) {
			code, err := m.rest(ctx, "POST", path, key, body)
			if err != nil || code < 400 || code >= 500 {
				return fmt.Errorf("%s with %s: status %d, %w", path, name, code, orNil(err))
			}
		}
	}
	for _, p := range m.Processes() {
		if err := m.garbage(ctx, p, secret); err != nil {
			return err
		}
	}
	for _, p := range m.Processes() {
		select {
		case <-p.Exited():
			return p.Ended("of bad input")
		default:
		}
		log, err := os.ReadFile(p.Log())
		if err != nil {
			return err
		}
		if bytes.Contains(log, []byte(secret)) {
			return fmt.Errorf("the log of %s holds words of a request", p.Name)
		}
	}
	return m.sound(ctx, "after it")
}

func bodies(model, secret string) map[string][]byte {
	quoted := fmt.Sprintf("%q", secret)
	message := `"messages":[{"role":"user","content":` + quoted + `}],"prompt":` + quoted
	with := func(field string) []byte { return []byte(`{"model":"` + model + `",` + message + `,` + field + `}`) }
	return map[string][]byte{
		"nothing":          nil,
		"half an object":   []byte(`{"model":` + quoted),
		"an array":         []byte(`[` + quoted + `]`),
		"no UTF-8":         append([]byte(`{"model":"`+model+`","prompt":"`+secret), 0xff, 0xfe, '"', '}'),
		"a deep object":    []byte(strings.Repeat(`{"a":`, 20000) + quoted + strings.Repeat(`}`, 20000)),
		"NaN":              with(`"temperature":NaN`),
		"a huge number":    with(`"temperature":1e999`),
		"a negative count": with(`"max_tokens":-5`),
		"too many tokens":  with(`"max_tokens":4294967296`),
		"out of range":     with(`"top_p":7`),
		"an unknown field": with(`"` + secret + `":1`),
		"ids of no token":  []byte(`{"model":"` + model + `","prompt":[-1,99999999]}`),
		"a huge body":      append(append([]byte(`{"prompt":"`), bytes.Repeat([]byte(secret), 2<<20)...), '"', '}'),
	}
}

// garbage calls every method of a process with the certificate that it is for.
func (m *Mesh) garbage(ctx context.Context, p *local.Process, secret string) error {
	service, id, _ := strings.Cut(p.Name, "/")
	caller := map[string]string{"prefill": "router-router-0", "decode": "router-router-0", "kvbroker": "kvbroker-" + m.D, "router": "cli-cli"}[service]
	own, err := identity.Load(filepath.Join(m.Dir, "identity", caller))
	if err != nil {
		return err
	}
	a, err := p.Addr(ctx)
	if err != nil {
		return err
	}
	cc, err := grpc.NewClient("passthrough:///"+a.GRPC, grpc.WithTransportCredentials(own.ClientCreds(service, id)))
	if err != nil {
		return err
	}
	defer cc.Close()
	for _, method := range methods() {
		for what, size := range map[string]int{"text where a message belongs": 1, "many of them": 1000, "too many": 1 << 20} {
			bounded, cancel := context.WithTimeout(ctx, 3*time.Second)
			err := cc.Invoke(bounded, method, wrapperspb.Bytes([]byte(strings.Repeat(secret, size))), &emptypb.Empty{})
			cancel()
			if code := status.Code(err); code == codes.Unknown || code == codes.Unavailable {
				return fmt.Errorf("%s at %s with %s: %w", method, p.Name, what, err)
			}
		}
	}
	return nil
}

// c3 has a prefill worker that accepts and never answers.
func c3(ctx context.Context, m *Mesh) error {
	p := m.Process(prefill)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	open := func() (bool, error) {
		v, err := m.metric(ctx, router, `leasehold_peer_breaker_open{peer="prefill-0",peer_service="prefill"}`)
		return v == 1, err
	}
	opened := false
	for round := 0; round < 5 && !opened; round++ { // several at once: an open breaker stays so for two seconds only
		if err := m.volley(ctx, 8); err != nil {
			return err
		}
		var err error
		if opened, err = open(); err != nil {
			return err
		}
	}
	if !opened {
		return errors.New("the breaker is not open after 5 volleys of 8")
	}
	e := m.echo(1, m.Tokens)
	start := time.Now()
	a, err := m.ask(ctx, e)
	if v := canary.Judge(e, canary.Parse(a.Text)); err != nil || a.Err != nil || !v.Exact() || time.Since(start) > 2*time.Second {
		return fmt.Errorf("with an open breaker: %v, %v, %w, after %v", a.Err, v, orNil(err), time.Since(start))
	}
	return errors.Join(p.Signal(syscall.SIGCONT), m.settled(ctx), m.sound(ctx, "once it answers again"))
}

// volley sends so many requests at once. Each must end, well or with an error, soon after its deadline.
func (m *Mesh) volley(ctx context.Context, n int) error {
	all := make(chan error, n)
	for range n {
		e := m.echo(0, m.Tokens)
		go func() {
			start := time.Now()
			a, err := m.ask(ctx, e)
			d := time.Since(start)
			switch {
			case err != nil:
			case d > 6*time.Second:
				err = fmt.Errorf("a request took %v with a deadline of 1 s and one retry", d)
			case a.Err == nil && !a.Completed:
				err = errors.New("a request ended with neither error nor answer")
			}
			all <- err
		}()
	}
	var err error
	for range n {
		err = errors.Join(err, <-all)
	}
	return err
}

// c5 kills a prefill worker under load.
func c5(ctx context.Context, m *Mesh) error {
	const requests = 24
	if err := m.Arm(prefill, fault.RunnerStep, "kill after=9 times=1"); err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var wrong error
	right := 0
	for i := range requests {
		mu.Lock()
		e := m.echo(i%2, 200+10*i)
		mu.Unlock()
		wg.Go(func() {
			a, err := m.ask(ctx, e)
			mu.Lock()
			defer mu.Unlock()
			switch v := canary.Judge(e, canary.Parse(a.Text)); {
			case err != nil:
				wrong = errors.Join(wrong, err)
			case a.Err != nil && a.Text == "" && !a.Completed:
			case a.Err == nil && a.Completed && v.Exact():
				right++
			default:
				wrong = errors.Join(wrong, fmt.Errorf("%v, %v", a.Err, v))
			}
		})
	}
	wg.Wait()
	p := m.Process(prefill)
	select {
	case <-p.Exited():
		_ = p.Ended("by the point that killed it")
	default:
		wrong = errors.Join(wrong, errors.New("prefill-0 was not killed"))
	}
	if right < requests*3/4 {
		wrong = errors.Join(wrong, fmt.Errorf("%d of %d were answered", right, requests))
	}
	if code, text, err := m.Admin(ctx, decode, "/readyz"); err != nil || code != http.StatusOK {
		wrong = errors.Join(wrong, fmt.Errorf("decode is not ready: %s, %w", text, orNil(err)))
	}
	return errors.Join(wrong, m.settled(ctx))
}

// c6 asks for health while a long prefill runs, and while the scheduler is stopped.
func c6(ctx context.Context, m *Mesh) error {
	if err := m.Arm(prefill, fault.RunnerStep, "delay for=100ms"); err != nil {
		return err
	}
	e := m.echo(0, 2000)
	a := m.start(ctx, request(e))
	for i := 0; ; i++ {
		code, text, err := m.Admin(ctx, prefill, "/readyz")
		if err != nil || code != http.StatusOK {
			a.cancel()
			return fmt.Errorf("during a long prefill: %s, %w", text, orNil(err))
		}
		select {
		case <-a.done:
		case <-time.After(50 * time.Millisecond):
			continue
		}
		if i < 3 {
			return fmt.Errorf("the prefill was over after %d looks", i)
		}
		break
	}
	if out, err := a.wait(); err != nil || !canary.Judge(e, out.Tokens).Exact() {
		return fmt.Errorf("the long prefill: %w", orNil(err))
	}
	if err := errors.Join(m.Disarm(prefill, fault.RunnerStep), m.Arm(prefill, fault.RunnerLoop, "hold times=1")); err != nil {
		return err
	}
	err := until(ctx, 15*time.Second, func() error {
		code, text, err := m.Admin(ctx, prefill, "/readyz")
		if err == nil && (code == http.StatusOK || !strings.Contains(text, "has not come round")) {
			err = fmt.Errorf("with a stopped scheduler: %d %s", code, text)
		}
		return err
	})
	return errors.Join(err, m.Disarm(prefill, fault.RunnerLoop), m.sound(ctx, "once it runs again"))
}

// c7 cancels long prompts; the short one after them does not wait for the dead.
func c7(ctx context.Context, m *Mesh) error {
	if err := m.Arm(prefill, fault.RunnerStep, "delay for=50ms"); err != nil {
		return err
	}
	var all []*started
	for range 8 {
		all = append(all, m.start(ctx, request(m.echo(0, 1400)))) // a fair share of the pool, below the quarantine's cap
	}
	err := until(ctx, 10*time.Second, func() error {
		d, err := m.Describe(ctx, m.P)
		if err == nil && len(d.Leases) < 8 {
			err = fmt.Errorf("%d leases", len(d.Leases))
		}
		return err
	})
	for _, a := range all {
		a.cancel()
		_, _ = a.wait() // canceled
	}
	if err != nil {
		return err
	}
	start := time.Now()
	e := m.echo(1, 70)
	err = m.exact(ctx, request(e), e)
	if d := time.Since(start); d > 2*time.Second {
		err = errors.Join(err, fmt.Errorf("the short prompt took %v after 8 cancelled long ones", d))
	}
	return errors.Join(err, m.Disarm(prefill, fault.RunnerStep), m.settled(ctx))
}

// killed kills a process at a point of its own while a request is served.
func killed(part string, point fault.Point, with string, seen bool) func(context.Context, *Mesh) error {
	return func(ctx context.Context, m *Mesh) error {
		where := m.process(part)
		p := m.Process(where)
		if err := m.Arm(where, point, "kill times=1 "+with); err != nil {
			return err
		}
		e := m.echo(0, m.Tokens)
		a, err := m.ask(ctx, e)
		if err != nil {
			return err
		}
		if a.Err == nil || a.Completed || a.Finish != "" {
			return fmt.Errorf("the tenant got error %v, finish_reason %q, [DONE] %v; want an error alone", a.Err, a.Finish, a.Completed)
		}
		if v := canary.Judge(e, canary.Parse(a.Text)); v.Leaked() > 0 || v.Other > 0 || !seen && a.Text != "" {
			return fmt.Errorf("before the error came %v", v)
		}
		if err := until(ctx, 10*time.Second, func() error {
			select {
			case <-p.Exited():
				return nil
			default:
				return errors.New("it was not killed")
			}
		}); err != nil {
			return err
		}
		_ = p.Ended("by the point that killed it")
		if err := m.survivors(ctx, where); err != nil {
			return err
		}
		if err := p.Start(); err != nil {
			return err
		}
		if _, err := p.Addr(ctx); err != nil {
			return err
		}
		return errors.Join(m.sound(ctx, "after the restart"), m.settled(ctx))
	}
}

// survivors waits until the brokers that live have every page back.
func (m *Mesh) survivors(ctx context.Context, dead string) error {
	for _, b := range m.Brokers {
		if "kvbroker/"+b.Name == dead {
			continue
		}
		wait, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("10 s are over"))
		err := m.Baseline(wait, b.Name)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// l12 restarts a broker whose workers still hold its old memory.
func l12(ctx context.Context, m *Mesh) error {
	where := m.process(brokerOfP)
	if err := errors.Join(m.sound(ctx, "before it"), m.restart(ctx, where), m.sound(ctx, "after the restart")); err != nil {
		return err
	}
	d, err := m.Describe(ctx, m.P)
	if err != nil {
		return err
	}
	if d.Pool.Pages != uint32(m.Brokers[0].Pages) {
		return fmt.Errorf("the new pool has %d pages, want %d", d.Pool.Pages, m.Brokers[0].Pages)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", m.Process(prefill).PID()))
	if err != nil {
		return err
	}
	if n := bytes.Count(maps, []byte("/memfd:")); n != 2 { // the pool and its tags, once
		return fmt.Errorf("prefill has %d mappings of pools, want those of the new broker alone", n)
	}
	if m.Mover == SHM {
		err = m.oneView(ctx)
	}
	return errors.Join(err, m.settled(ctx))
}

// oneView waits until decode's broker has, beside its own pool and tags, one pool of prefill's broker mapped.
func (m *Mesh) oneView(ctx context.Context) error {
	return until(ctx, 10*time.Second, func() error {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", m.Process(m.process(brokerOfD)).PID()))
		if n := bytes.Count(maps, []byte("/memfd:")); err == nil && n != 3 {
			err = fmt.Errorf("decode's broker has %d mappings of pools and tags, want 3", n)
		}
		return err
	})
}

// unlike has a worker, beside the good one, that differs from its broker.
func unlike(args func(dir string) []string, want ...string) (func(*local.Config), func(context.Context, *Mesh) error) {
	change := func(c *local.Config) {
		c.Prefills = append(c.Prefills, local.Worker{ID: "prefill-x", Broker: "broker-p", Args: args(c.Dir)})
	}
	return change, func(ctx context.Context, m *Mesh) error {
		err := until(ctx, 20*time.Second, func() error {
			code, text, err := m.Admin(ctx, "prefill/prefill-x", "/readyz")
			if err != nil {
				return err
			}
			for _, w := range want {
				if code == http.StatusOK || !strings.Contains(text, w) {
					return fmt.Errorf("status %d: %s; want %q in it", code, text, w)
				}
			}
			return nil
		})
		return errors.Join(err, m.sound(ctx, "by the other pair"))
	}
}

func controlCases() []Case {
	writeOther := func(dir string) []string {
		data, err := canary.File(8192)
		path := filepath.Join(dir, "other.gguf")
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			panic(err) // the folder is the mesh's own
		}
		return []string{"-model", path, "-promise", "4096"}
	}
	otherModel, otherModelRun := unlike(writeOther, "model revision")
	otherLayout, otherLayoutRun := unlike(func(string) []string { return []string{"-backend", "ref"} }, "layout hash")
	retries := func(c *local.Config) {
		twoPrefills(c)
		c.Router = []string{"-retry-ratio", "1", "-first-token-timeout", "1s", "-admit-timeout", "2s"}
	}
	both := Movers()
	return []Case{
		{Row: "H9", Name: "prefill has other weights than its broker", Movers: both, Own: true, Mesh: otherModel, Run: otherModelRun},
		{Row: "H16", Name: "prefill has pages of another layout with equal shapes", Movers: both, Own: true, Mesh: otherLayout, Run: otherLayoutRun},
		{Row: "L3", Name: "prefill is killed while it writes", Movers: both, Own: true, Run: killed(prefill, fault.RunnerStep, "after=1", false)},
		{Row: "L3", Name: "decode is killed while it reads", Movers: both, Own: true, Run: killed(decode, fault.RunnerStep, "after=3", true)},
		{Row: "L3", Name: "prefill's broker is killed while it sends", Movers: both, Own: true, Run: killed(brokerOfP, fault.MoverPage, "after=2", false)},
		{Row: "L3", Name: "decode's broker is killed before it verifies", Movers: both, Own: true, Run: killed(brokerOfD, fault.BrokerVerify, "", false)},
		{Row: "L12", Name: "a broker is restarted while workers hold its memory", Movers: both, Own: true, Run: l12},
		{Row: "C1", Name: "every method and route without credential, and with another service's", Movers: []string{GRPC}, Run: c1},
		{Row: "C2", Name: "what nobody should send, to every method and route", Movers: []string{GRPC}, Own: true, Run: c2},
		{Row: "C3", Name: "a worker that accepts and never answers", Movers: both, Own: true, Mesh: retries, Run: c3},
		{Row: "C5", Name: "prefill is killed under load", Movers: both, Own: true, Run: c5, Mesh: func(c *local.Config) {
			twoPrefills(c)
			c.Router = []string{"-retry-ratio", "1"}
		}},
		{Row: "C6", Name: "health during a long prefill, and with a stopped scheduler", Movers: both, Run: c6},
		{Row: "C7", Name: "eight long prompts are cancelled before a short one", Movers: both, Run: c7},
		{Row: "C8", Name: "decode is killed after some tokens", Movers: both, Own: true, Run: killed(decode, fault.RunnerStep, "after=9", true)},
	}
}
