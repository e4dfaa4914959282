package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"leasehold.dev/cli/local"
	"leasehold.dev/protos/errs"
)

func modelName(ctx context.Context, st state) string {
	name, err := firstModel(ctx, newClient(st.URL, st.Key))
	if err != nil {
		return "MODEL"
	}
	return name
}

// account is the part of the router's record that the demo shows.
type account struct {
	Requests []struct {
		PromptTokens uint32  `json:"prompt_tokens"`
		FirstTokenMS float64 `json:"first_token_ms"`
		TotalMS      float64 `json:"total_ms"`
		Outcome      string  `json:"outcome"`
		Choices      []struct {
			Route            string  `json:"route"`
			Mover            string  `json:"mover"`
			Prefill          string  `json:"prefill"`
			Decode           string  `json:"decode"`
			PrefillBroker    string  `json:"prefill_broker"`
			DecodeBroker     string  `json:"decode_broker"`
			PagesReserved    uint32  `json:"pages_reserved"`
			PrefillPages     uint32  `json:"prefill_pages"`
			ExpectedPages    uint32  `json:"expected_pages"`
			PagesMoved       uint32  `json:"pages_moved"`
			BytesMoved       uint64  `json:"bytes_moved"`
			PrefillRows      uint32  `json:"prefill_rows"`
			DecodeRows       uint32  `json:"decode_rows"`
			Root             string  `json:"root"`
			PrefillRoot      string  `json:"prefill_root"`
			VerdictsEqual    bool    `json:"verdicts_equal"`
			PromptTokens     uint32  `json:"prompt_tokens"`
			CompletionTokens uint32  `json:"completion_tokens"`
			GuardsOn         bool    `json:"guards_on"`
			NumericsClass    string  `json:"numerics_class"`
			AdmitMS          float64 `json:"admit_ms"`
			PrefillMS        float64 `json:"prefill_ms"`
			ComputeMS        float64 `json:"compute_ms"`
			TransferMS       float64 `json:"transfer_ms"`
			VerifyMS         float64 `json:"verify_ms"`
			FirstTokenMS     float64 `json:"first_token_ms"`
			DecodeMS         float64 `json:"decode_ms"`
		} `json:"choices"`
	} `json:"requests"`
}

// runDemo asks one question at temperature 0, prints the answer as it comes and then what both halves did. closing is the
// demo's bar, to be printed last.
func runDemo(ctx context.Context, s streams, m *local.Mesh, question string) (closing string, err error) {
	began := time.Now()
	client := newClient(m.URL(), m.Tenants["demo"], option.WithMaxRetries(0))
	model, err := firstModel(ctx, client)
	if err != nil {
		return "", err
	}
	s.sayf("\n> %s\n", question)
	answer, err := stream(ctx, client, s.out, openai.ChatCompletionNewParams{Model: model, MaxTokens: openai.Int(200), Temperature: openai.Float(0),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)}})
	s.sayf("")
	if err != nil {
		return "", err
	}
	acc, err := readAccount(ctx, m)
	if err != nil {
		return "", err
	}
	return s.judge(acc, strings.Contains(strings.ToLower(answer), "scatter"), time.Since(began))
}

func readAccount(ctx context.Context, m *local.Mesh) (account, error) {
	var acc account
	a, err := m.Process("router/router-0").Addr(ctx)
	if err != nil {
		return acc, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.Admin+"/debug/requests?limit=1", nil)
	if err != nil {
		return acc, fmt.Errorf("demo: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return acc, fmt.Errorf("demo: %w", err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&acc); err != nil {
		return acc, fmt.Errorf("demo: the router's record: %w", err)
	}
	if len(acc.Requests) != 1 || len(acc.Requests[0].Choices) != 1 {
		return acc, errs.New(errs.Internal, "demo: the router's record has %d requests", len(acc.Requests))
	}
	return acc, nil
}

// judge prints what happened and returns whether the demo shows what it is for, as a line of JSON.
func (s streams) judge(acc account, scattering bool, took time.Duration) (string, error) {
	r, c := acc.Requests[0], acc.Requests[0].Choices[0]
	w := tabwriter.NewWriter(s.out, 0, 4, 2, ' ', 0)
	row := func(what, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", what, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(w, "\nwhat happened")
	row("route", "%s: %s at %s -> %s at %s, mover %s", c.Route, c.Prefill, c.PrefillBroker, c.Decode, c.DecodeBroker, c.Mover)
	row("tokens", "%d of the prompt (verified), %d of the answer", c.PromptTokens, c.CompletionTokens)
	row("pages", "%d expected by decode, %d sealed by prefill, %d arrived and verified; %d reserved for the whole request", c.ExpectedPages, c.PrefillPages, c.PagesMoved, c.PagesReserved)
	row("rows", "%d written by prefill, %d found by decode's broker", c.PrefillRows, c.DecodeRows)
	row("bytes", "%d", c.BytesMoved)
	row("root", "%s by prefill's broker", c.PrefillRoot)
	row("", "%s by decode's broker", c.Root)
	row("verdicts", "%s; guards %s; numerics %s", map[bool]string{true: "equal", false: "DIFFERENT"}[c.VerdictsEqual], map[bool]string{true: "on", false: "OFF"}[c.GuardsOn], c.NumericsClass)
	row("times", "admitted %.1f ms, prefill %.1f ms (computing %.1f), transfer %.1f ms, verify %.1f ms, first token at %.1f ms, decode %.1f ms, all %.1f ms",
		c.AdmitMS, c.PrefillMS, c.ComputeMS, c.TransferMS, c.VerifyMS, r.FirstTokenMS, c.DecodeMS, r.TotalMS)
	if err := w.Flush(); err != nil {
		return "", fmt.Errorf("demo: %w", err)
	}
	due := uint32(math.Ceil(float64(c.PromptTokens-1) / 64))
	met := scattering && due > 0 && c.PagesMoved == due && c.ExpectedPages == due && c.PrefillPages == due && c.VerdictsEqual &&
		c.Root == c.PrefillRoot && c.Root != "" && c.PromptTokens == r.PromptTokens && c.GuardsOn
	line, err := json.Marshal(map[string]any{"bar": "demo", "met": met, "figures": map[string]any{"speaks_of_scattering": scattering,
		"pages_due": due, "pages_moved": c.PagesMoved, "verdicts_equal": c.VerdictsEqual, "prompt_tokens": c.PromptTokens,
		"completion_tokens": c.CompletionTokens, "first_token_ms": r.FirstTokenMS, "answer_seconds": took.Seconds()}})
	if err != nil {
		return "", fmt.Errorf("demo: %w", err)
	}
	if !met {
		return string(line), errs.New(errs.Internal, "the demo did not show what it is for; see the line above")
	}
	return string(line), nil
}
