// Package faultkit is the tests' hand on the processes of a faults build: it arms points, turns guards off, and reads how
// often each point has acted.
package faultkit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/protos/fault"
)

// Environ names the folder of the control sockets, for processes that are started after it is set.
const Environ = "LEASEHOLD_FAULTS"

// answerTime is how long a process may take to answer a command.
const answerTime = 10 * time.Second

// Bin is where the programs of the faults build are, beside those of the release build.
func Bin(release string) string { return filepath.Join(filepath.Dir(release), "faults", "bin") }

// Stage is a mesh of a faults build. One at a time in a process: the folder of its sockets is in the environment.
type Stage struct {
	*scenario.Stage
	dir string
}

// Open starts the mesh that change makes of the default one. Every process carries out the lines of start first; without
// any, nothing is armed and every guard is on. The caller closes it.
func Open(ctx context.Context, s scenario.Setup, change func(*local.Config), start ...string) (*Stage, error) {
	s.Bin = Bin(s.Bin)
	dir, err := os.MkdirTemp("", "leasehold-faults")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "start"), []byte(strings.Join(start, "\n")), 0o600); err != nil {
		return nil, err
	}
	if err := os.Setenv(Environ, dir); err != nil {
		return nil, err
	}
	st, err := scenario.Open(ctx, s, change)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir), os.Unsetenv(Environ))
	}
	return &Stage{st, dir}, nil
}

// Close stops the mesh.
func (s *Stage) Close() error {
	return errors.Join(s.Stage.Close(), os.RemoveAll(s.dir), os.Unsetenv(Environ))
}

// Do gives one command to a process, such as prefill/prefill-0, and returns its answer.
func (s *Stage) Do(process, line string) (string, error) {
	p := s.Process(process)
	if p == nil {
		return "", fmt.Errorf("no process %s", process)
	}
	conn, err := net.Dial("unix", filepath.Join(s.dir, strconv.Itoa(p.PID())))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil { // a stopped process answers nothing
		return "", err
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", err
	}
	if answer = strings.TrimSpace(answer); strings.HasPrefix(answer, "error: ") {
		return "", fmt.Errorf("%s: %q: %s", process, line, answer)
	}
	return answer, nil
}

// Arm makes a point of a process act: with is the action and its settings, as in "corrupt n=100".
func (s *Stage) Arm(process string, p fault.Point, with string) error {
	_, err := s.Do(process, fmt.Sprintf("arm %s %s", p, with))
	return err
}

// Disarm lets go of a point.
func (s *Stage) Disarm(process string, p fault.Point) error {
	_, err := s.Do(process, fmt.Sprintf("disarm %s", p))
	return err
}

// homes says which services ask about a guard; the others' switch is left alone.
func homes(g fault.Guard) []string {
	switch g {
	case fault.LimitRouter, fault.Verdict:
		return []string{"router"}
	case fault.LimitPrefill:
		return []string{"prefill"}
	case fault.LimitDecode:
		return []string{"decode"}
	case fault.MAC, fault.Nobody, fault.Zero, fault.Quarantine:
		return []string{"kvbroker"}
	case fault.Counts, fault.PromptDigest:
		return []string{"prefill", "decode", "kvbroker"}
	case fault.TagRead, fault.TagWrite, fault.Length:
		return []string{"prefill", "decode"}
	case fault.Epoch, fault.Digest:
		return []string{"kvbroker"}
	}
	return nil
}

// Guards turns exactly these guards off, wherever they are asked about, and every other one on.
func (s *Stage) Guards(off ...fault.Guard) error {
	for _, p := range s.Processes() {
		service, _, _ := strings.Cut(p.Name, "/")
		var turnOn, turnOff []string
		for _, g := range fault.Guards() {
			if slices.Contains(off, g) && slices.Contains(homes(g), service) {
				turnOff = append(turnOff, string(g))
			} else {
				turnOn = append(turnOn, string(g))
			}
		}
		for word, names := range map[string][]string{"on": turnOn, "off": turnOff} {
			if _, err := s.Do(p.Name, strings.Join(append([]string{word}, names...), " ")); err != nil {
				return err
			}
		}
	}
	return nil
}

// Calm disarms every point of every process that still runs.
func (s *Stage) Calm() error {
	var all []string
	for _, p := range fault.Points() {
		all = append(all, string(p))
	}
	for _, p := range s.Processes() {
		if _, err := s.Do(p.Name, "disarm "+strings.Join(all, " ")); err != nil {
			return err
		}
	}
	return nil
}

// Tally is how often each point of a process was passed and has acted, and which guards are off.
type Tally struct {
	Passed, Fired map[fault.Point]int
	Off           []fault.Guard
}

// Tally asks a process.
func (s *Stage) Tally(process string) (Tally, error) {
	var t Tally
	answer, err := s.Do(process, "counts")
	if err == nil {
		err = json.Unmarshal([]byte(answer), &t)
	}
	return t, err
}

// Fired waits until a point of a process has acted n times.
func (s *Stage) Fired(ctx context.Context, process string, p fault.Point, n int) error {
	return scenario.Until(ctx, func() error {
		t, err := s.Tally(process)
		if err == nil && t.Fired[p] < n {
			err = fmt.Errorf("%s: %s has acted %d times, want %d", process, p, t.Fired[p], n)
		}
		return err
	})
}
