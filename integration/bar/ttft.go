package bar

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/driver"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

const (
	ttftRuns     = 7
	ttftChunk    = 128 // tokens of a step, the workers' default
	handoffTo    = 1.15
	handoffAsk   = 2000
	handoffPages = ttftChunk / 64
)

// ttftLoad is a prompt's length, and how much later the first token of a split request may come than that of one process.
type ttftLoad struct {
	tokens int
	atMost float64
}

var ttftLoads = []ttftLoad{{2000, 1.05}, {8000, 1.02}}

// runBenchTTFT measures, over real processes on one host: the time from the end of prefill's last step to the start of decode's
// first, beside what moving and verifying one chunk takes there; and the time to the first token, split beside one process.
func runBenchTTFT(ctx context.Context, e *Env) (Result, error) {
	dir, err := os.MkdirTemp("", "leasehold-ttft")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)
	echoes, err := scenario.Setup{Bin: e.Bin}.Canary(dir, uint32(stuckPrompt+canary.Answer))
	if err != nil {
		return Result{}, err
	}
	echoes.Cache = dir
	only := os.Getenv("LEASEHOLD_ONLY") // a part, for who works on one
	fig := map[string]any{"runs": ttftRuns, "chunk_tokens": ttftChunk}
	met := true
	for _, part := range []struct {
		name  string
		setup scenario.Setup
	}{{"canary", echoes}, {"smollm2", e.setup()}} {
		if only != "" && only != part.name {
			continue
		}
		ok, err := e.ttft(ctx, part.name, part.setup, fig)
		if err != nil {
			return Result{Figures: fig}, fmt.Errorf("%s: %w", part.name, err)
		}
		met = met && ok
	}
	if only != "" && only != "stuck" {
		return Result{Figures: fig}, nil
	}
	ok, err := e.stuck(ctx, echoes, fig)
	if err != nil {
		return Result{Figures: fig}, fmt.Errorf("stuck peer: %w", err)
	}
	return Result{Met: met && ok && only == "", Figures: fig}, nil // a part is not the bar
}

func (e *Env) ttft(ctx context.Context, name string, s scenario.Setup, fig map[string]any) (met bool, err error) {
	st, err := scenario.Open(ctx, s, func(c *local.Config) {
		c.Brokers = []local.Broker{{Name: "broker-p", Pages: 320, Args: []string{"-check-share=0.05"}}, {Name: "broker-d", Pages: 320, Args: []string{"-check-share=0.05"}}}
		for _, w := range []*local.Worker{&c.Prefills[0], &c.Decodes[0]} {
			w.Args = []string{"-chunk", strconv.Itoa(ttftChunk)}
		}
	})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	met = true
	for _, m := range []meshv1.Mover{meshv1.Mover_MOVER_SHM, meshv1.Mover_MOVER_GRPC} {
		ok, err := e.handoff(ctx, st, m, name, fig)
		if err != nil {
			return false, err
		}
		met = met && ok
	}
	for _, l := range ttftLoads {
		ok, err := e.firstToken(ctx, st, l, name, fig)
		if err != nil {
			return false, err
		}
		met = met && ok
	}
	return met, nil
}

// promptFor is prompt in the words of the stage's model.
func promptFor(st *scenario.Stage, n int) []int32 {
	ids := prompt(n)
	for i := range ids {
		ids[i] %= int32(st.Loaded.Config.Vocab)
	}
	return ids
}

// ask runs one request and says when its first token came.
func ask(ctx context.Context, st *scenario.Stage, tokens int, m meshv1.Mover) (driver.Outcome, error) {
	r := driver.Request{Tenant: "bench", IDs: promptFor(st, tokens), MaxNew: 4, Sampling: &decodev1.Sampling{IgnoreEos: true}, Decode: "decode-0"}
	if m != meshv1.Mover_MOVER_NONE {
		r.Prefill = "prefill-0"
		r.Change = func(a *meshv1.Admission) { a.Mover = m }
	}
	out, err := st.Driver.Run(ctx, r)
	if err == nil && m != meshv1.Mover_MOVER_NONE && out.Decode.GetMover() != m {
		err = fmt.Errorf("mover %v was asked for, %v moved", m, out.Decode.GetMover())
	}
	return out, err
}

// handoff is the bar of the last chunk: its pages and one round trip.
func (e *Env) handoff(ctx context.Context, st *scenario.Stage, m meshv1.Mover, name string, fig map[string]any) (bool, error) {
	var took, chunk, trip []float64
	for i := range ttftRuns + 1 {
		out, err := ask(ctx, st, handoffAsk, m)
		if err != nil {
			return false, err
		}
		one, err := ask(ctx, st, ttftChunk+1, m)
		if err != nil {
			return false, err
		}
		if one.Decode.GetPages() != handoffPages {
			return false, fmt.Errorf("a chunk of %d pages moved, want %d", one.Decode.GetPages(), handoffPages)
		}
		if i == 0 {
			continue
		}
		took = append(took, float64(out.Finished.GetBeganUnixUs()-out.Prefill.GetEndedUnixUs()))
		chunk = append(chunk, float64(one.Decode.GetTransferUs()+one.Decode.GetVerifyUs()))
		for range 20 {
			start := time.Now()
			if _, err := st.Describe(ctx, "broker-d"); err != nil {
				return false, err
			}
			trip = append(trip, float64(time.Since(start).Microseconds()))
		}
	}
	ratio := median(took) / (median(chunk) + median(trip))
	key := fmt.Sprintf("%s_handoff_%s", name, m)
	fig[key] = map[string]any{"last_step_to_first_step_us": median(took), "chunk_moved_and_verified_us": median(chunk), "round_trip_us": median(trip),
		"ratio": round3(ratio), "at_most": handoffTo}
	e.sayf("bench-ttft: %s: %v", key, fig[key])
	return ratio <= handoffTo, nil
}

// firstToken compares split with one process, run by run.
func (e *Env) firstToken(ctx context.Context, st *scenario.Stage, l ttftLoad, name string, fig map[string]any) (bool, error) {
	var split, solo, ratios []float64
	ways := []meshv1.Mover{meshv1.Mover_MOVER_SHM, meshv1.Mover_MOVER_NONE}
	for i := range ttftRuns + 1 {
		got := map[meshv1.Mover]float64{}
		for _, m := range ways {
			out, err := ask(ctx, st, l.tokens, m)
			if err != nil {
				return false, err
			}
			got[m] = float64(out.Finished.GetFirstTokenUs())
		}
		slices.Reverse(ways)
		if i == 0 {
			continue
		}
		split, solo = append(split, got[meshv1.Mover_MOVER_SHM]), append(solo, got[meshv1.Mover_MOVER_NONE])
		ratios = append(ratios, got[meshv1.Mover_MOVER_SHM]/got[meshv1.Mover_MOVER_NONE])
	}
	ratio := median(ratios)
	key := fmt.Sprintf("%s_ttft_%d", name, l.tokens)
	fig[key] = map[string]any{"split_ms": round3(median(split) / 1e3), "one_process_ms": round3(median(solo) / 1e3), "ratio": round3(ratio), "at_most": l.atMost}
	e.sayf("bench-ttft: %s: %v", key, fig[key])
	return ratio <= l.atMost, nil
}

// round3 keeps three places.
func round3(x float64) float64 { return math.Round(x*1e3) / 1e3 }
