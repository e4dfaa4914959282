package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
)

// Client asks one router. It is safe for concurrent use.
type Client struct {
	URL   string // without /v1
	Key   string // a canary's
	Model string
	HTTP  *http.Client
}

const (
	headerPair  = "X-Leasehold-Pair"
	headerRoute = "X-Leasehold-Route"
	maxAnswer   = 1 << 20
)

// Ask sends one prompt through pair. A status that is no 200 is an answer; only no answer at all is an error of it.
func (c *Client) Ask(ctx context.Context, e canary.Echo, pair string) Answer {
	start := time.Now()
	a := c.ask(ctx, e, pair)
	a.Took = time.Since(start)
	return a
}

func (c *Client) ask(ctx context.Context, e canary.Echo, pair string) Answer {
	body, err := json.Marshal(map[string]any{"model": c.Model, "prompt": canary.Text(e.Tokens), "max_tokens": canary.Answer, "temperature": 0})
	if err != nil {
		return Answer{Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return Answer{Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(headerPair, pair)
	head, b, err := c.do(req)
	if err != nil {
		return Answer{Err: err}
	}
	var said struct {
		Error   *struct{ Code, Message string }
		Choices []struct{ Text string }
		Usage   struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal(b, &said); err != nil {
		return Answer{Err: fmt.Errorf("status %d: the body is no JSON: %w", head.status, err)}
	}
	a := Answer{Status: head.status, Prompt: said.Usage.Prompt, Completion: said.Usage.Completion, Pair: head.Get(headerPair), Route: head.Get(headerRoute)}
	if said.Error != nil {
		a.Code, a.Message = said.Error.Code, said.Error.Message
	}
	if len(said.Choices) > 0 {
		a.Text = said.Choices[0].Text
	}
	return a
}

// Limit is the effective limit in tokens of the client's model, or of the first one when it has none; then it is set.
func (c *Client) Limit(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/v1/models", nil)
	if err != nil {
		return 0, err
	}
	head, b, err := c.do(req)
	if err != nil {
		return 0, err
	}
	var said struct {
		Data []struct {
			ID      string
			Context int `json:"context_length"`
		}
	}
	if err := json.Unmarshal(b, &said); err != nil || head.status != http.StatusOK {
		return 0, errs.New(errs.Unavailable, "GET /v1/models: status %d", head.status)
	}
	for _, m := range said.Data {
		if c.Model == "" || m.ID == c.Model {
			c.Model = m.ID
			return m.Context, nil
		}
	}
	return 0, errs.New(errs.NotFound, "the router serves %d models, none of them is %q", len(said.Data), c.Model)
}

// head is an answer without its body.
type head struct {
	http.Header
	status int
}

func (c *Client) do(req *http.Request) (head, []byte, error) {
	req.Header.Set("Authorization", "Bearer "+c.Key)
	res, err := c.HTTP.Do(req)
	if err != nil {
		return head{}, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return head{res.Header, res.StatusCode}, b, err
}
