package cli

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/proof"
	"leasehold.dev/protos/receipt"
)

// maxRead bounds what is read of a file or an answer.
const maxRead = 64 << 20

type verifyCommand struct {
	target
	Receipt string `arg:"" help:"File with the receipt, a JWS; - is standard input."`
	JWKS    string `help:"The router's public keys: URL or file. The router's own URL when absent." placeholder:"URL|FILE"`
	Prompt  string `help:"File with the request as it was sent: its JSON, or the plain text of a completion. Its digest is computed again." type:"existingfile" placeholder:"FILE"`
	Model   string `help:"GGUF file of the model, for its tokenizer; that of the mesh of this host when absent." placeholder:"FILE"`
	Replay  bool   `help:"Run the request of --prompt again on the mesh, and compare tokens and logits."`
}

// Run says line by line what holds, and ends with an error at the first thing that does not.
func (c *verifyCommand) Run(ctx context.Context, s streams) error {
	if c.Replay && c.Prompt == "" {
		return errs.New(errs.Invalid, "--replay needs --prompt: a receipt has no text")
	}
	jws, err := c.read(s)
	if err != nil {
		return err
	}
	keys, err := c.keys(ctx)
	if err != nil {
		return err
	}
	r, err := keys.Verify(jws)
	if err != nil {
		return err
	}
	describe(s, r)
	if c.Prompt == "" {
		s.sayf("prompt     not compared (--prompt)")
		return nil
	}
	request, err := readRequest(c.Prompt)
	if err != nil {
		return err
	}
	if err := c.comparePrompt(r, request); err != nil {
		return err
	}
	s.sayf("prompt     the same: its digest with the receipt's nonce, tenant and revision is the receipt's")
	if !c.Replay {
		s.sayf("replay     not run (--replay)")
		return nil
	}
	return c.replay(ctx, s, keys, r, request)
}

func (c *verifyCommand) read(s streams) (string, error) {
	in := s.in
	if c.Receipt != "-" {
		f, err := os.Open(c.Receipt)
		if err != nil {
			return "", errs.New(errs.Invalid, "receipt: %w", err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, receipt.MaxJWS+2))
	if err != nil {
		return "", fmt.Errorf("receipt: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// keys come from a file, a URL, or the router.
func (c *verifyCommand) keys(ctx context.Context) (receipt.Keys, error) {
	from := c.JWKS
	if from == "" {
		url, err := c.router()
		if err != nil {
			return nil, err
		}
		from = url + "/.well-known/jwks.json"
	}
	if !strings.Contains(from, "://") {
		b, err := os.ReadFile(from)
		if err != nil {
			return nil, errs.New(errs.Invalid, "--jwks: %w", err)
		}
		return receipt.ParseKeys(b)
	}
	b, err := fetch(ctx, http.MethodGet, from, "", nil)
	if err != nil {
		return nil, err
	}
	return receipt.ParseKeys(b)
}

// router is the router's address; keys need no API key.
func (c *verifyCommand) router() (string, error) {
	if c.URL != "" {
		return routerURL(c.URL)
	}
	st, err := readState(orDefault(c.Dir))
	if err != nil {
		return "", fmt.Errorf("the public keys: --jwks or --url: %w", err)
	}
	return st.URL, nil
}

func (c *verifyCommand) comparePrompt(r *receipt.Claims, request *request) error {
	path := c.Model
	if path == "" {
		st, err := readState(orDefault(c.Dir))
		if err != nil || st.Model == "" {
			return errs.New(errs.Invalid, "--prompt needs the model's tokenizer: --model")
		}
		path = st.Model
	}
	m, err := model.Load(path)
	if err != nil {
		return errs.New(errs.Invalid, "--model: %w", err)
	}
	defer m.Close()
	if !bytes.Equal(m.Revision[:], r.ModelRevision) {
		return errs.New(errs.Invalid, "--model: its revision is %x, the receipt's is %x", m.Revision[:], []byte(r.ModelRevision))
	}
	ids, stop, err := request.tokens(m)
	if err != nil {
		return err
	}
	if uint32(len(ids)) != r.Tokens.Prompt {
		return errs.New(errs.Corrupt, "prompt: %d tokens, the receipt's has %d: this is not what was answered", len(ids), r.Tokens.Prompt)
	}
	if d := proof.PromptDigest(r.Nonce, r.Tenant, r.ModelRevision, ids); !bytes.Equal(d, r.PromptDigest) {
		return errs.New(errs.Corrupt, "prompt: its digest is %x, the receipt's %x: this is not what was answered", d, []byte(r.PromptDigest))
	}
	if d := receipt.StopDigest(stop); !bytes.Equal(d, r.Sampling.StopDigest) {
		return errs.New(errs.Corrupt, "stop strings: their digest is %x, the receipt's %x", d, []byte(r.Sampling.StopDigest))
	}
	return nil
}

func describe(s streams, r *receipt.Claims) {
	guards := "on"
	if !r.GuardsOn {
		guards = "OFF"
	}
	at := func(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
	s.sayf("receipt    %s, choice %d of request %s", hex.EncodeToString(r.ID), r.Choice, hex.EncodeToString(r.Request))
	s.sayf("signature  good")
	s.sayf("tenant     %s", r.Tenant)
	s.sayf("model      %s, revision %s, numerics %s", r.Model, hex.EncodeToString(r.ModelRevision[:8]), r.Numerics)
	if r.Split() {
		s.sayf("route      %s: %s to %s, %d rows in %d pages", r.Route, r.Workers.Prefill, r.Workers.Decode, r.Tokens.Rows, r.Pages.Moved)
	} else {
		s.sayf("route      %s: %s", r.Route, r.Workers.Decode)
	}
	s.sayf("tokens     %d of the prompt, %d new, ended by %s", r.Tokens.Prompt, r.Tokens.Completion, r.Finish)
	s.sayf("verdict    %s, guards %s", r.Verdict, guards)
	s.sayf("times      received %s, finished %s", at(r.Times.Received), at(r.Times.Finished))
	s.sayf("output     %s", hex.EncodeToString(r.OutputDigest))
	s.sayf("logits     %s", hex.EncodeToString(r.LogitDigest))
}

// fetch is the body of an answer with status 200.
func fetch(ctx context.Context, method, url, key string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, errs.New(errs.Invalid, "%w", err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, errs.New(errs.Unavailable, "%w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxRead))
	if err != nil {
		return nil, errs.New(errs.Unavailable, "%s: %w", url, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, errs.New(errs.Unavailable, "%s: status %d: %s", url, res.StatusCode, clip(b))
	}
	return b, nil
}

func clip(b []byte) string {
	if len(b) > 300 {
		return string(b[:300]) + "..."
	}
	return string(bytes.TrimSpace(b))
}
