package scenario

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Ask is a chat request in OpenAI's words.
type Ask struct {
	Content   string
	MaxTokens int
	Stream    bool
	Extra     map[string]any // more fields of the body
}

func (a Ask) body(model string) map[string]any {
	b := map[string]any{
		"model": model, "temperature": 0, "max_tokens": a.MaxTokens, "stream": a.Stream,
		"messages": []map[string]string{{"role": "user", "content": a.Content}},
	}
	for k, v := range a.Extra {
		b[k] = v
	}
	return b
}

// Words is a text of about n tokens.
func Words(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s ", [...]string{"sea", "hill", "road", "rain", "stone", "light", "tree", "wind"}[(i*7+i/8)%8])
	}
	return b.String()
}

// APIError is OpenAI's error object, with what came around it.
type APIError struct {
	Status     int
	RetryAfter string
	Message    string  `json:"message"`
	Type       string  `json:"type"`
	Param      *string `json:"param"`
	Code       *string `json:"code"`
}

// String says what the tenant was told; it is not an error of the test's own.
func (e *APIError) String() string {
	if e == nil {
		return "no error"
	}
	code := ""
	if e.Code != nil {
		code = *e.Code
	}
	return fmt.Sprintf("status %d, type %s, code %s: %s", e.Status, e.Type, code, e.Message)
}

// Answer is what a request came to.
type Answer struct {
	Text      string
	Finish    string // finish_reason; empty when none came
	Completed bool   // [DONE], or a whole JSON answer
	Route     string
	ReceiptID string // by the header, which comes first
	Receipt   string // JWS of the first choice
	Usage     map[string]int
	Events    int
	Err       *APIError     // the error object, in the body or as an event
	First     time.Duration // to the first content
	ErrorAt   time.Time     // when the error event came
}

// Post sends body to path with key and reads the answer to its end. seen, when not nil, is called after each content.
// An error object is no Go error: it is in the Answer.
func (st *Stage) Post(ctx context.Context, path, key string, body any, seen func(Answer)) (Answer, error) {
	raw, ok := body.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return Answer{}, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, st.URL()+path, bytes.NewReader(raw))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("X-Request-Id", "the-same-for-all") // T5: a client names its requests as it likes
	start := time.Now()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	a := Answer{Route: res.Header.Get("x-leasehold-route"), ReceiptID: res.Header.Get("x-leasehold-receipt")}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return a, a.readStream(res.Body, start, seen)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return a, err
	}
	return a, a.readWhole(b, res)
}

// Chat sends a chat request of the demo tenant.
func (st *Stage) Chat(ctx context.Context, ask Ask, seen func(Answer)) (Answer, error) {
	return st.Post(ctx, "/v1/chat/completions", st.Key(), ask.body(st.Loaded.Name), seen)
}

type reply struct {
	Choices []struct {
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
		Text    string  `json:"text"` // of a completion
		Finish  *string `json:"finish_reason"`
		Receipt string  `json:"leasehold_receipt"`
	} `json:"choices"`
	Usage map[string]int `json:"usage"`
	Error *APIError      `json:"error"`
}

func (a *Answer) readWhole(b []byte, res *http.Response) error {
	var r reply
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("status %d, body %q: %w", res.StatusCode, b, err)
	}
	if a.Err = r.Error; a.Err != nil {
		a.Err.Status, a.Err.RetryAfter = res.StatusCode, res.Header.Get("Retry-After")
		return nil
	}
	if res.StatusCode != http.StatusOK || len(r.Choices) == 0 {
		return fmt.Errorf("status %d without an error object or a choice: %q", res.StatusCode, b)
	}
	a.Text, a.Usage, a.Completed = r.Choices[0].Message.Content+r.Choices[0].Text, r.Usage, true
	a.Receipt = r.Choices[0].Receipt
	if r.Choices[0].Finish != nil {
		a.Finish = *r.Choices[0].Finish
	}
	return nil
}

// wholeLines leaves out a last line without its end: the stream was cut inside an event, which is none then.
func wholeLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if atEOF && bytes.IndexByte(data, '\n') < 0 {
		return len(data), nil, nil
	}
	return bufio.ScanLines(data, atEOF)
}

func (a *Answer) readStream(body io.Reader, start time.Time, seen func(Answer)) error {
	sc := bufio.NewScanner(body)
	sc.Buffer(nil, 1<<20)
	sc.Split(wholeLines)
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			a.Completed = true
			continue
		}
		var r reply
		if err := json.Unmarshal([]byte(data), &r); err != nil {
			return fmt.Errorf("event %q: %w", data, err)
		}
		a.Events++
		if r.Error != nil {
			a.Err, a.ErrorAt = r.Error, time.Now()
			a.Err.Status = http.StatusOK
		}
		if r.Usage != nil {
			a.Usage = r.Usage
		}
		for _, c := range r.Choices {
			content := c.Delta.Content + c.Text
			a.Text += content
			if c.Finish != nil {
				a.Finish, a.Receipt = *c.Finish, c.Receipt
			}
			if content != "" && a.First == 0 {
				a.First = time.Since(start)
			}
			if content != "" && seen != nil {
				seen(*a)
			}
		}
	}
	return sc.Err()
}
