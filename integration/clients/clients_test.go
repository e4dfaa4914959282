// Package clients drives the mesh with OpenAI's official clients, unchanged.
package clients

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"leasehold.dev/integration/scenario/stagetest"
	"leasehold.dev/protos/receipt"
)

type refused struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Param  string `json:"param"`
	Type   string `json:"type"`
}

func TestOfficialClients(t *testing.T) {
	st := stagetest.Open(t, nil)
	var whole string
	t.Run("Go", func(t *testing.T) { whole = goClient(t, st.URL(), st.Key(), st.Loaded.Name) })
	t.Run("Python", func(t *testing.T) { pythonClient(t, st.URL(), st.Key(), st.Loaded.Name, whole) })
}

func goClient(t *testing.T, url, key, model string) string {
	ctx := t.Context()
	client := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
	p := openai.ChatCompletionNewParams{Model: model, Temperature: openai.Float(0), MaxTokens: openai.Int(24),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Why is the sky blue?")}}
	whole, err := client.Chat.Completions.New(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Choices) != 1 || whole.Choices[0].FinishReason != "length" || whole.Usage.CompletionTokens != 24 {
		t.Fatalf("whole answer: %s", whole.RawJSON())
	}
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := client.Chat.Completions.NewStreaming(ctx, p)
	defer stream.Close()
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("the client's accumulator refuses %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	got, want := acc.Choices[0].Message.Content, whole.Choices[0].Message.Content
	if got != want || acc.Choices[0].FinishReason != "length" || acc.Usage.CompletionTokens != 24 {
		t.Errorf("streamed %q (%s, usage %+v), whole %q", got, acc.Choices[0].FinishReason, acc.Usage, want)
	}
	t.Run("receipts", func(t *testing.T) { receipts(t, url, key, whole.Choices[0].RawJSON()) })
	p.Model, p.StreamOptions = "gpt-99", openai.ChatCompletionStreamOptionsParam{} // which is for streams only
	_, err = client.Chat.Completions.New(ctx, p)
	var api *openai.Error
	if !errors.As(err, &api) || api.StatusCode != 404 || api.Code != "model_not_found" {
		t.Errorf("unknown model: %v, want 404 model_not_found", err)
	}
	return want
}

// receipts looks at what the clients skip: a choice as it came has a receipt that verifies, and nobody else's client can
// ask for it.
func receipts(t *testing.T, url, key, choice string) {
	var got struct {
		Receipt string `json:"leasehold_receipt"`
	}
	if err := json.Unmarshal([]byte(choice), &got); err != nil {
		t.Fatal(err)
	}
	c := verified(t, url, got.Receipt)
	if c.Tokens.Completion != 24 || !c.GuardsOn || c.Tenant != "demo" || !c.Split() {
		t.Errorf("the receipt says %+v", c)
	}
	path := url + "/v1/receipts/" + hex.EncodeToString(c.ID)
	code, body := get(t, path, key)
	if code != 200 || !strings.Contains(body, got.Receipt) {
		t.Errorf("GET %s: %d %s", path, code, body)
	}
	if code, body := get(t, path, ""); code != 401 {
		t.Errorf("GET without a key: %d %s", code, body)
	}
}

// verified is what a receipt claims, by the keys that the router shows to everybody.
func verified(t *testing.T, url, jws string) *receipt.Claims {
	t.Helper()
	_, set := get(t, url+"/.well-known/jwks.json", "")
	keys, err := receipt.ParseKeys([]byte(set))
	if err != nil {
		t.Fatal(err)
	}
	c, err := keys.Verify(jws)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(t *testing.T, url, key string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func pythonClient(t *testing.T, url, key, model, whole string) {
	dir := os.Getenv("LEASEHOLD_PYCLIENT")
	if dir == "" {
		t.Fatal("LEASEHOLD_PYCLIENT is not set: run make pyclient, then the tests through make test")
	}
	cmd := exec.CommandContext(t.Context(), "python3", "client.py", url, key, model)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("client.py: %v\n%s", err, stderr.String())
	}
	var got struct {
		Models              []string
		Whole, Finish, Role string
		Usage               []int
		Logprobs, Top       int
		Streamed            string
		StreamRole          string   `json:"stream_role"`
		StreamFinish        []string `json:"stream_finish"`
		StreamUsage         []int    `json:"stream_usage"`
		Text                string
		TextStreamed        string `json:"text_streamed"`
		Two                 []int
		TwoTexts            []string `json:"two_texts"`
		Receipts            []int
		Receipt             string
		ReceiptID           string   `json:"receipt_id"`
		BadTools            *refused `json:"bad_tools"`
		BadModel            *refused `json:"bad_model"`
		BadKey              *refused `json:"bad_key"`
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if c := verified(t, url, got.Receipt); hex.EncodeToString(c.ID) != got.ReceiptID || c.Tokens.Completion != 24 {
		t.Errorf("the header names receipt %s, the body has %+v", got.ReceiptID, c)
	}
	for _, tt := range []struct {
		what string
		ok   bool
	}{
		{"the model is listed", slices.Equal(got.Models, []string{model})},
		{"both clients read the same text", got.Whole != "" && got.Whole == whole},
		{"streamed equals whole", got.Streamed == got.Whole},
		{"one role, one finish_reason", got.Role == "assistant" && got.StreamRole == "assistant" && got.Finish == "length" && slices.Equal(got.StreamFinish, []string{"length"})},
		{"usage adds up", len(got.Usage) == 3 && got.Usage[0]+got.Usage[1] == got.Usage[2] && got.Usage[1] == 24 && slices.Equal(got.StreamUsage, []int{24})},
		{"a logprob a token, two tops each", got.Logprobs == 24 && got.Top == 2},
		{"text completions, whole and streamed", got.Text != "" && got.Text == got.TextStreamed},
		{"n = 2 gives two answers that differ", slices.Equal(got.Two, []int{0, 1}) && got.TwoTexts[0] != got.TwoTexts[1]},
		{"one receipt a choice, whole and streamed", slices.Equal(got.Receipts, []int{1, 1, 2, 1, 1})},
		{"tools are refused by name", got.BadTools != nil && got.BadTools.Status == 400 && got.BadTools.Param == "tools"},
		{"an unknown model is 404", got.BadModel != nil && got.BadModel.Code == "model_not_found"},
		{"a wrong key is 401", got.BadKey != nil && got.BadKey.Status == 401 && got.BadKey.Code == "invalid_api_key"},
	} {
		if !tt.ok {
			t.Errorf("not so: %s; got %s", tt.what, out)
		}
	}
}
