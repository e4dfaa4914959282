package scenario

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	steadyRequests = 2000
	steadyWarm     = 200
	steadyAtOnce   = 8
	steadyIdle     = 10 * time.Second
	steadyGrowth   = 16 << 20 // bytes of resident memory a process
)

// Steady sends 2,000 mixed requests, some cancelled, and checks that nothing grows between the 200th and the last.
var Steady = Scenario{"steady", runSteady}

// A process is looked at a few times: the least is what it holds when nothing passes through it.
const (
	looks        = 10
	betweenLooks = 200 * time.Millisecond
)

// footprint is what one process holds.
type footprint struct {
	goroutines, descriptors int
	resident                int64
}

func runSteady(ctx context.Context, s Setup) (map[string]any, error) {
	st, err := Open(ctx, s, nil)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	load := &load{st: st, rng: rand.New(rand.NewPCG(1, 2))}
	before, err := load.to(ctx, steadyWarm)
	if err != nil {
		return nil, err
	}
	after, err := load.to(ctx, steadyRequests)
	fig := map[string]any{"requests": load.sent, "completed": load.completed, "cancelled": load.cancelled, "refused": load.refused}
	if err != nil {
		return fig, err
	}
	var worst int64
	for name, b := range before {
		a := after[name]
		worst = max(worst, a.resident-b.resident)
		if a.goroutines != b.goroutines || a.descriptors != b.descriptors || a.resident-b.resident > steadyGrowth {
			err = errors.Join(err, fmt.Errorf("%s grew: goroutines %d to %d, descriptors %d to %d, resident %d to %d KiB", name,
				b.goroutines, a.goroutines, b.descriptors, a.descriptors, b.resident>>10, a.resident>>10))
		}
	}
	fig["resident_growth_worst_kib"] = worst >> 10
	if load.completed < steadyRequests/2 || load.cancelled < steadyRequests/50 {
		err = errors.Join(err, fmt.Errorf("only %d completed and %d cancelled", load.completed, load.cancelled))
	}
	return fig, err
}

type load struct {
	st  *Stage
	rng *rand.Rand

	mu                                  sync.Mutex
	sent, completed, cancelled, refused int
	failed                              error
}

// to sends requests until total were sent, lets the mesh idle, and returns each process's footprint.
func (l *load) to(ctx context.Context, total int) (map[string]footprint, error) {
	work := make(chan Ask)
	var wg sync.WaitGroup
	for range steadyAtOnce {
		wg.Go(func() {
			for a := range work {
				l.one(ctx, a)
			}
		})
	}
	for ; l.sent < total && ctx.Err() == nil; l.sent++ {
		work <- Ask{Content: Words(1 + l.rng.IntN(1+l.rng.IntN(300))), MaxTokens: 1 + l.rng.IntN(12), Stream: l.rng.IntN(2) == 0,
			Extra: map[string]any{"seed": l.sent, "temperature": l.rng.IntN(2)}}
	}
	close(work)
	wg.Wait()
	http.DefaultClient.CloseIdleConnections()

	if err := errors.Join(ctx.Err(), l.failed); err != nil {
		return nil, err
	}
	idle := time.NewTimer(steadyIdle)
	defer idle.Stop()
	select {
	case <-idle.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := l.st.untouched(ctx); err != nil {
		return nil, err
	}
	return l.st.least(ctx)
}

// least is each process's smallest footprint of a few.
func (st *Stage) least(ctx context.Context) (map[string]footprint, error) {
	out, err := st.footprints(ctx)
	tick := time.NewTicker(betweenLooks)
	defer tick.Stop()
	for i := 1; i < looks && err == nil; i++ {
		<-tick.C
		var more map[string]footprint
		more, err = st.footprints(ctx)
		for name, f := range more {
			o := out[name]
			out[name] = footprint{min(o.goroutines, f.goroutines), min(o.descriptors, f.descriptors), min(o.resident, f.resident)}
		}
	}
	return out, err
}

func (l *load) one(ctx context.Context, a Ask) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var seen func(Answer)
	drop := a.Stream && a.MaxTokens > 6
	if drop {
		seen = func(Answer) { cancel() }
	}
	got, err := l.st.Chat(ctx, a, seen)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case drop && ctx.Err() != nil:
		l.cancelled++
	case err != nil:
		l.failed = errors.Join(l.failed, err)
	case got.Err != nil && got.Err.Status == http.StatusTooManyRequests:
		l.refused++
	case got.Err != nil:
		l.failed = errors.Join(l.failed, errors.New(got.Err.String()))
	case got.Completed:
		l.completed++
	default:
		l.failed = errors.Join(l.failed, fmt.Errorf("a plain end without [DONE]: %+v", got))
	}
}

func (st *Stage) footprints(ctx context.Context) (map[string]footprint, error) {
	out := map[string]footprint{}
	for _, p := range st.Processes() {
		a, err := p.Addr(ctx)
		if err != nil {
			return nil, err
		}
		f := footprint{}
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID())) // before our own connection for the metrics
		if err != nil {
			return nil, err
		}
		f.descriptors = len(fds)
		if f.goroutines, err = goroutines(ctx, a.Admin); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		if f.resident, err = resident(p.PID()); err != nil {
			return nil, err
		}
		out[p.Name] = f
	}
	return out, nil
}

// goroutines reads go_goroutines from a process's metrics.
func goroutines(ctx context.Context, admin string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	sc := bufio.NewScanner(res.Body)
	for sc.Scan() {
		if v, ok := strings.CutPrefix(sc.Text(), "go_goroutines "); ok {
			return strconv.Atoi(v)
		}
	}
	return 0, errors.Join(sc.Err(), errors.New("no go_goroutines in /metrics"))
}

// resident is VmRSS in bytes.
func resident(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS for process %d", pid)
}
