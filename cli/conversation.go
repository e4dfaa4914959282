package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
)

// maxLine is the longest message of a conversation, in bytes.
const maxLine = 1 << 20

// conversation is a chat whose messages are lines: /reset forgets, /exit or the end of input leaves. An interrupt stops
// the answer that runs and the conversation goes on; at the prompt it leaves.
type conversation struct {
	chat       *chatCommand
	client     openai.Client
	streams    streams
	prompt     string
	interrupts chan os.Signal
	messages   []openai.ChatCompletionMessageParamUnion
}

func newConversation(chat *chatCommand, client openai.Client, s streams) *conversation {
	c := &conversation{chat: chat, client: client, streams: s, interrupts: make(chan os.Signal, 1), messages: chat.start()}
	if s.interactive() {
		c.prompt = "> "
	}
	return c
}

func (c *conversation) hold(ctx context.Context) error {
	signal.Notify(c.interrupts, os.Interrupt)
	defer signal.Stop(c.interrupts)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := readLines(ctx, c.streams.in)
	for {
		fmt.Fprint(c.streams.out, c.prompt)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.interrupts:
			c.leave()
			return nil
		case l, ok := <-lines:
			if !ok || l.err != nil {
				c.leave()
				return l.err
			}
			if l.text == "/exit" {
				return nil
			}
			c.take(ctx, l.text)
		}
	}
}

// leave ends the prompt's line.
func (c *conversation) leave() {
	if c.prompt != "" {
		c.streams.sayf("")
	}
}

// take handles one line. A question that got no whole answer is not remembered.
func (c *conversation) take(ctx context.Context, line string) {
	switch line {
	case "":
	case "/reset":
		c.messages = c.chat.start()
		c.streams.sayf("forgotten")
	default:
		asked := slices.Concat(c.messages, []openai.ChatCompletionMessageParamUnion{openai.UserMessage(line)})
		answer, interrupted, err := c.ask(ctx, asked)
		switch {
		case err == nil:
			c.messages = slices.Concat(asked, []openai.ChatCompletionMessageParamUnion{openai.AssistantMessage(answer)})
		case interrupted:
			c.streams.sayf("interrupted: this question is not remembered")
		default:
			c.streams.sayf("error: %v", err)
		}
	}
}

// ask ends at an interrupt.
func (c *conversation) ask(ctx context.Context, messages []openai.ChatCompletionMessageParamUnion) (answer string, interrupted bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan bool)
	go func() {
		select {
		case <-c.interrupts:
			cancel()
			watched <- true
		case <-ctx.Done():
			watched <- false
		}
	}()
	answer, err = c.chat.ask(ctx, c.client, c.streams.out, messages)
	cancel()
	return answer, <-watched, err
}

type line struct {
	text string
	err  error
}

// readLines sends the trimmed lines of in, then an error if there is one, and closes the channel. Its goroutine ends with
// ctx or the input; a read from a terminal cannot be called off, and then it ends with the process.
func readLines(ctx context.Context, in io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		defer close(lines)
		sc := bufio.NewScanner(in)
		sc.Buffer(nil, maxLine)
		send := func(l line) bool {
			select {
			case lines <- l:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for sc.Scan() {
			if !send(line{text: strings.TrimSpace(sc.Text())}) {
				return
			}
		}
		if err := sc.Err(); err != nil {
			send(line{err: fmt.Errorf("chat: standard input, lines of at most %d bytes: %w", maxLine, err)})
		}
	}()
	return lines
}
