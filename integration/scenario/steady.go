package scenario

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
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
	goroutines  profile
	descriptors int
	resident    int64
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
		if a.goroutines.total() != b.goroutines.total() || a.descriptors != b.descriptors || a.resident-b.resident > steadyGrowth {
			err = errors.Join(err, fmt.Errorf("%s grew: goroutines %d to %d (%s), descriptors %d to %d, resident %d to %d KiB", name,
				b.goroutines.total(), a.goroutines.total(), a.goroutines.since(b.goroutines), b.descriptors, a.descriptors, b.resident>>10, a.resident>>10))
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
			if f.goroutines.total() < o.goroutines.total() {
				o.goroutines = f.goroutines
			}
			out[name] = footprint{o.goroutines, min(o.descriptors, f.descriptors), min(o.resident, f.resident)}
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

// profile counts a process's goroutines by the function that each was started with.
type profile map[string]int

func (p profile) total() int {
	n := 0
	for _, c := range p {
		n += c
	}
	return n
}

// since names what p has more or less of than before.
func (p profile) since(before profile) string {
	var out []string
	for _, f := range slices.Sorted(maps.Keys(p)) {
		if d := p[f] - before[f]; d != 0 {
			out = append(out, fmt.Sprintf("%+d %s", d, f))
		}
	}
	for _, f := range slices.Sorted(maps.Keys(before)) {
		if _, ok := p[f]; !ok {
			out = append(out, fmt.Sprintf("%+d %s", -before[f], f))
		}
	}
	return strings.Join(out, ", ")
}

// goroutines reads a process's profile, in runtime/pprof's text form: a block for each stack, "count @ addresses" and
// then a line a frame, the outermost last.
func goroutines(ctx context.Context, admin string) (profile, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/debug/goroutines", nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return parseProfile(res.Body)
}

func parseProfile(r io.Reader) (profile, error) {
	total, count, root := -1, 0, ""
	out := profile{}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		switch {
		case len(f) == 4 && f[0] == "goroutine" && f[2] == "total":
			total, _ = strconv.Atoi(f[3])
		case len(f) > 1 && f[1] == "@":
			count, _ = strconv.Atoi(f[0])
		case len(f) > 2 && f[0] == "#":
			root, _, _ = strings.Cut(f[2], "+")
		case len(f) == 0 && count > 0:
			out[root] += count
			count, root = 0, ""
		}
	}
	if count > 0 {
		out[root] += count
	}
	if got := out.total(); sc.Err() == nil && got != total {
		return nil, fmt.Errorf("goroutine profile: %d in all, %d in its stacks", total, got)
	}
	return out, sc.Err()
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
