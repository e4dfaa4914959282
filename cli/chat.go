package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"leasehold.dev/protos/errs"
)

type chatCommand struct {
	target
	Model       string   `help:"Served model; the first one when absent." short:"m"`
	System      string   `help:"System message." short:"s"`
	MaxTokens   int64    `help:"Most tokens of an answer." default:"512"`
	Temperature *float64 `help:"Sampling temperature; the model's default when absent." short:"t"`
	Question    string   `arg:"" optional:"" help:"Ask this and end; without it, a conversation on standard input."`
}

// Run asks one question or holds a conversation.
func (c *chatCommand) Run(ctx context.Context, s streams) error {
	client, url, err := c.client()
	if err != nil {
		return err
	}
	if c.Model == "" {
		if c.Model, err = firstModel(ctx, client); err != nil {
			return err
		}
	}
	if c.Question != "" {
		_, err := c.ask(ctx, client, s.out, append(c.start(), openai.UserMessage(c.Question)))
		return err
	}
	s.sayf("%s at %s; /reset forgets, /exit leaves, an interrupt stops the answer", c.Model, url)
	return newConversation(c, client, s).hold(ctx)
}

// start is what every conversation begins with.
func (c *chatCommand) start() []openai.ChatCompletionMessageParamUnion {
	if c.System == "" {
		return nil
	}
	return []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(c.System)}
}

// ask prints the answer as it comes, and ends its line.
func (c *chatCommand) ask(ctx context.Context, client openai.Client, out io.Writer, messages []openai.ChatCompletionMessageParamUnion) (string, error) {
	p := openai.ChatCompletionNewParams{Model: c.Model, Messages: messages, MaxTokens: openai.Int(c.MaxTokens)}
	if c.Temperature != nil {
		p.Temperature = openai.Float(*c.Temperature)
	}
	answer, err := stream(ctx, client, out, p)
	if err == nil || answer != "" {
		fmt.Fprintln(out)
	}
	return answer, err
}

// stream prints the answer as it comes. An answer without a finish_reason is an error: it was cut.
func stream(ctx context.Context, client openai.Client, out io.Writer, p openai.ChatCompletionNewParams) (string, error) {
	var answer strings.Builder
	finished := false
	st := client.Chat.Completions.NewStreaming(ctx, p)
	defer st.Close()
	for st.Next() {
		for _, choice := range st.Current().Choices {
			fmt.Fprint(out, choice.Delta.Content)
			answer.WriteString(choice.Delta.Content)
			finished = finished || choice.FinishReason != ""
		}
	}
	if err := st.Err(); err != nil {
		return answer.String(), explain(err)
	}
	if !finished {
		return answer.String(), errs.New(errs.Unavailable, "the answer was cut after %d bytes: no finish_reason came", answer.Len())
	}
	return answer.String(), nil
}

// explain is the server's own words where it sent an error object.
func explain(err error) error {
	var api *openai.Error
	if errors.As(err, &api) && api.Message != "" {
		return fmt.Errorf("status %d, %s: %s", api.StatusCode, api.Type, api.Message)
	}
	var event *ssestream.StreamError
	if errors.As(err, &event) {
		return explainEvent(event)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errs.New(errs.Unavailable, "the answer was cut: the connection ended in the middle of it")
	}
	return err
}

func explainEvent(e *ssestream.StreamError) error {
	var data struct {
		Error struct{ Type, Message string }
	}
	if err := json.Unmarshal(e.Event.Data, &data); err != nil || data.Error.Message == "" {
		return e
	}
	return errs.New(errs.Unavailable, "the answer was cut, %s: %s", data.Error.Type, data.Error.Message)
}

func firstModel(ctx context.Context, client openai.Client) (string, error) {
	page, err := client.Models.List(ctx)
	if err != nil {
		return "", explain(err)
	}
	if len(page.Data) == 0 {
		return "", errs.New(errs.Unavailable, "the router serves no model now")
	}
	return page.Data[0].ID, nil
}
