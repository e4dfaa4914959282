package bar

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/integration/single"
)

const (
	benchPrompt   = 512
	benchDecode   = 128
	benchRounds   = 5
	decodeAtLeast = 1.2
	promptAtLeast = 2.5
)

// speeds are tokens a second.
type speeds struct{ prompt, decode []float64 }

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// runBenchEngine alternates our engine and llama.cpp's llama-bench on the same file, 2 threads each.
func runBenchEngine(ctx context.Context, e *Env) (Result, error) {
	m, err := e.load()
	if err != nil {
		return Result{}, err
	}
	defer m.Close()
	q40, err := e.requantise(ctx)
	if err != nil {
		return Result{}, err
	}
	r, err := single.Open(m, engine.Options{Backend: "cpu", Threads: 2, MaxTokens: benchPrompt, MaxSeqs: 1, CacheDir: e.Cache}, 32)
	if err != nil {
		return Result{}, err
	}
	defer r.Close()
	var ours, peer, peer40 speeds
	for round := range benchRounds {
		if err := errorsFirst(ourSpeed(r, &ours), e.peerSpeed(ctx, e.Model, &peer), e.peerSpeed(ctx, q40, &peer40)); err != nil {
			return Result{}, err
		}
		e.sayf("bench-engine: round %d of %d: prompt %.0f, peer %.0f (Q4_0 %.0f); decode %.0f, peer %.0f (Q4_0 %.0f) tokens a second", round+1, benchRounds,
			last(ours.prompt), last(peer.prompt), last(peer40.prompt), last(ours.decode), last(peer.decode), last(peer40.decode))
	}
	fig := map[string]any{
		"simd": r.Engine.SIMD(), "threads": 2, "rounds": benchRounds,
		"prompt512": median(ours.prompt), "peer_prompt512": median(peer.prompt), "peer_q4_0_prompt512": median(peer40.prompt),
		"decode": median(ours.decode), "peer_decode": median(peer.decode), "peer_q4_0_decode": median(peer40.decode),
	}
	p, d := ratio(ours.prompt, peer.prompt), ratio(ours.decode, peer.decode)
	fig["prompt512_ratio"], fig["decode_ratio"] = p, d
	fig["prompt512_ratio_q4_0"], fig["decode_ratio_q4_0"] = ratio(ours.prompt, peer40.prompt), ratio(ours.decode, peer40.decode)
	return Result{Met: p >= promptAtLeast && d >= decodeAtLeast, Figures: fig}, nil
}

func last(v []float64) float64 { return v[len(v)-1] }

// ratio is the median of the rounds' ratios.
func ratio(a, b []float64) float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i] / b[i]
	}
	return median(r)
}

func errorsFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func ourSpeed(r *single.Runner, to *speeds) error {
	for range 2 { // the first run warms up
		s, err := r.Open(benchPrompt)
		if err != nil {
			return err
		}
		start := time.Now()
		if _, err := s.Feed(prompt(benchPrompt), benchPrompt); err != nil {
			return err
		}
		p := benchPrompt / time.Since(start).Seconds()
		if err := s.Close(); err != nil {
			return err
		}
		d, err := decodeSpeed(r)
		if err != nil {
			return err
		}
		to.prompt, to.decode = append(to.prompt, p), append(to.decode, d)
	}
	n := len(to.prompt)
	to.prompt, to.decode = append(to.prompt[:n-2], to.prompt[n-1]), append(to.decode[:n-2], to.decode[n-1])
	return nil
}

func decodeSpeed(r *single.Runner) (float64, error) {
	s, err := r.Open(benchDecode + 1)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	out, err := s.Feed([]int32{1}, 1)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	for range benchDecode {
		if out, err = s.Feed([]int32{single.Top(out.Logits)}, 1); err != nil {
			return 0, err
		}
	}
	return benchDecode / time.Since(start).Seconds(), nil
}

// requantise makes the Q4_0 file that the peer's fast kernels cover.
func (e *Env) requantise(ctx context.Context) (string, error) {
	out := filepath.Join(e.Peer, "q4_0.gguf")
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	cmd := exec.CommandContext(ctx, filepath.Join(e.Peer, "bin", "llama-quantize"), "--allow-requantize", e.Model, out, "Q4_0", "2")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("llama-quantize: %w: %s", err, b)
	}
	return out, nil
}

func (e *Env) peerSpeed(ctx context.Context, file string, to *speeds) error {
	cmd := exec.CommandContext(ctx, filepath.Join(e.Peer, "bin", "llama-bench"), "-m", file, "-t", "2", "-r", "3", "-o", "json",
		"-p", strconv.Itoa(benchPrompt), "-n", strconv.Itoa(benchDecode))
	cmd.Env = append(os.Environ(), "GOMP_CPU_AFFINITY=0 1")
	b, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("llama-bench: %w", err)
	}
	var rows []struct {
		Prompt int     `json:"n_prompt"`
		Gen    int     `json:"n_gen"`
		Speed  float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(b, &rows); err != nil {
		return fmt.Errorf("llama-bench: %w", err)
	}
	for _, row := range rows {
		switch {
		case row.Prompt == benchPrompt && row.Gen == 0:
			to.prompt = append(to.prompt, row.Speed)
		case row.Gen == benchDecode && row.Prompt == 0:
			to.decode = append(to.decode, row.Speed)
		}
	}
	if len(to.prompt) != len(to.decode) {
		return fmt.Errorf("llama-bench printed %d rows, not one for the prompt and one for decode", len(rows))
	}
	return nil
}
