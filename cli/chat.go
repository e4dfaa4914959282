package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

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

// Run asks one question or holds a conversation: a line is a message, /reset forgets, /exit or the end of input leaves.
func (c *chatCommand) Run(ctx context.Context, s streams) error {
	url, key, err := c.find()
	if err != nil {
		return err
	}
	client := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey(key))
	if c.Model == "" {
		if c.Model, err = firstModel(ctx, client); err != nil {
			return err
		}
	}
	if c.Question != "" {
		_, err := c.ask(ctx, client, s.out, append(c.start(), openai.UserMessage(c.Question)))
		return err
	}
	s.sayf("%s at %s; /reset forgets, /exit leaves", c.Model, url)
	messages := c.start()
	lines := bufio.NewScanner(s.in)
	lines.Buffer(nil, 1<<20)
	for fmt.Fprint(s.out, "> "); lines.Scan(); fmt.Fprint(s.out, "> ") {
		switch line := strings.TrimSpace(lines.Text()); line {
		case "":
		case "/exit":
			return nil
		case "/reset":
			messages = c.start()
		default:
			answer, err := c.ask(ctx, client, s.out, append(messages, openai.UserMessage(line)))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				s.sayf("error: %v", err)
				continue
			}
			messages = append(messages, openai.UserMessage(line), openai.AssistantMessage(answer))
		}
	}
	s.sayf("")
	return lines.Err()
}

func (c *chatCommand) start() []openai.ChatCompletionMessageParamUnion {
	if c.System == "" {
		return nil
	}
	return []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(c.System)}
}

func (c *chatCommand) ask(ctx context.Context, client openai.Client, out io.Writer, messages []openai.ChatCompletionMessageParamUnion) (string, error) {
	p := openai.ChatCompletionNewParams{Model: c.Model, Messages: messages, MaxTokens: openai.Int(c.MaxTokens)}
	if c.Temperature != nil {
		p.Temperature = openai.Float(*c.Temperature)
	}
	answer, err := stream(ctx, client, out, p)
	fmt.Fprintln(out)
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
		return answer.String(), errs.New(errs.Unavailable, "the answer was cut: no finish_reason came")
	}
	return answer.String(), nil
}

// explain is the server's own words where it sent an error object.
func explain(err error) error {
	var api *openai.Error
	if errors.As(err, &api) && api.Message != "" {
		return fmt.Errorf("status %d, %s: %s", api.StatusCode, api.Type, api.Message)
	}
	return err
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
