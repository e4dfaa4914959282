package cli

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestOneQuestion(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		out    string
		err    string // empty: none
	}{
		"a whole answer is printed as it came":      {[]string{chunk("Rayleigh ", ""), chunk("scattering", ""), chunk("", "stop"), done}, "Rayleigh scattering\n", ""},
		"an answer of the greatest length is whole": {[]string{chunk("Ray", "length"), done}, "Ray\n", ""},
		"an error event ends it":                    {[]string{chunk("Ray", ""), `data: {"error":{"message":"decode-0 is gone","type":"server_error"}}` + "\n\n"}, "Ray\n", "the answer was cut, server_error: decode-0 is gone"},
		"an error event without words is shown":     {[]string{`data: {"error":"odd"}` + "\n\n"}, "", "odd"},
		"no finish_reason means it was cut":         {[]string{chunk("Ray", ""), done}, "Ray\n", "cut after 3 bytes: no finish_reason"},
		"an end without any event is no answer":     {nil, "", "cut after 0 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, "", "chat", "--url", router(t, events(c.events...)), "--key", "good", "Why?")
			if out != c.out {
				t.Errorf("printed %q, want %q", out, c.out)
			}
			if c.err == "" && err != nil {
				t.Error(err)
			}
			if c.err != "" {
				wantError(t, err, c.err)
			}
		})
	}
}

func TestConnectionThatEndsInTheMiddle(t *testing.T) {
	url := router(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, chunk("Ray", ""))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	out, err := run(t, "", "chat", "--url", url, "--key", "good", "-m", "small", "Why?")
	wantError(t, err, "the connection ended in the middle")
	if out != "Ray\n" {
		t.Errorf("printed %q", out)
	}
}

func TestWrongKey(t *testing.T) {
	url := router(t, events())
	for _, args := range [][]string{{"chat", "Why?"}, {"models"}} {
		_, err := run(t, "", append(args, "--url", url, "--key", "bad")...)
		wantError(t, err, "status 401, authentication_error: Incorrect API key")
	}
}

func TestModels(t *testing.T) {
	out, err := run(t, "", "models", "--url", router(t, events())+"/v1", "--key", "good")
	want := "MODEL         LIMIT\nsmall         8192 tokens\na-larger-one  32768 tokens\n"
	if err != nil || out != want {
		t.Errorf("models printed %q, %v; want %q", out, err, want)
	}
}

// bodies records what each request asked.
func bodies(all *[]string, answer func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*all = append(*all, string(b))
		answer(w, r)
	}
}

func TestConversationRemembersAndForgets(t *testing.T) {
	var asked []string
	url := router(t, bodies(&asked, events(chunk("fine", "stop"), done)))
	out, err := run(t, "one\n\ntwo\n/reset\nthree\n/exit\nfour\n", "chat", "--url", url, "--key", "good", "-s", "Be brief.")
	if err != nil || len(asked) != 3 {
		t.Fatalf("%d requests, %v: %s", len(asked), err, out)
	}
	if !strings.Contains(asked[1], "one") || !strings.Contains(asked[1], "fine") || !strings.Contains(asked[1], "two") {
		t.Errorf("the second question lacks the first: %s", asked[1])
	}
	if strings.Contains(asked[2], "one") || !strings.Contains(asked[2], "Be brief.") {
		t.Errorf("after /reset: %s", asked[2])
	}
	if !strings.HasSuffix(out, "\nfine\nfine\nforgotten\nfine\n") {
		t.Errorf("printed %q", out)
	}
}

func TestConversationGoesOnAfterAnError(t *testing.T) {
	var asked []string
	url := router(t, bodies(&asked, func(w http.ResponseWriter, r *http.Request) {
		if len(asked) == 1 {
			events(chunk("no", ""), done)(w, r)
			return
		}
		events(chunk("fine", "stop"), done)(w, r)
	}))
	out, err := run(t, "one\ntwo", "chat", "--url", url, "--key", "good")
	if err != nil || len(asked) != 2 || strings.Contains(asked[1], "one") {
		t.Errorf("asked %q, %v", asked, err)
	}
	if !strings.Contains(out, "no\nerror: the answer was cut") || !strings.HasSuffix(out, "fine\n") {
		t.Errorf("printed %q", out)
	}
}

func TestInterruptStopsTheAnswerOnly(t *testing.T) {
	var n atomic.Int32
	url := router(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) > 1 {
			events(chunk("fine", "stop"), done)(w, r)
			return
		}
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, chunk("Ray", ""))
		w.(http.Flusher).Flush()
		syscall.Kill(syscall.Getpid(), syscall.SIGINT)
		<-r.Context().Done()
	})
	out, err := run(t, "one\ntwo\n", "chat", "--url", url, "--key", "good")
	if err != nil || !strings.Contains(out, "interrupted: this question is not remembered\nfine\n") {
		t.Errorf("printed %q, %v", out, err)
	}
}

func TestLineThatIsTooLong(t *testing.T) {
	_, err := run(t, strings.Repeat("x", maxLine+1), "chat", "--url", router(t, events()), "--key", "good")
	wantError(t, err, "lines of at most 1048576 bytes")
}
