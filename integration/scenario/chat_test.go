package scenario

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// A stream that is cut inside an event has the events before it, and its own error.
func TestACutStreamIsItsWholeEvents(t *testing.T) {
	const event = `data: {"choices":[{"text":"sea"}]}` + "\n\n"
	cut := errors.New("cut")
	for _, tt := range []struct {
		name, text string
		end        error
		want       string
		events     int
	}{
		{"whole", event + event, nil, "seasea", 2},
		{"cut after an event", event, cut, "sea", 1},
		{"cut inside an event", event + event[:20], cut, "sea", 1},
		{"cut before an event's end of line", event + strings.TrimRight(event, "\n"), cut, "sea", 1},
		{"cut at once", "", cut, "", 0},
	} {
		body := io.Reader(strings.NewReader(tt.text))
		if tt.end != nil {
			body = io.MultiReader(body, iotest.ErrReader(tt.end))
		}
		var a Answer
		err := a.readStream(body, time.Now(), nil)
		if !errors.Is(err, tt.end) || a.Text != tt.want || a.Events != tt.events || a.Completed {
			t.Errorf("%s: %q in %d events, %v; want %q in %d, %v", tt.name, a.Text, a.Events, err, tt.want, tt.events, tt.end)
		}
	}
}
