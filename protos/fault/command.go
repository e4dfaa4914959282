//go:build faults

package fault

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

var actions = map[string]Action{"delay": Delay, "hold": Hold, "pause": Pause, "kill": Kill, "drop": Drop, "truncate": Truncate,
	"duplicate": Duplicate, "reorder": Reorder, "corrupt": Corrupt, "stale-epoch": StaleEpoch, "late-write": LateWrite}

// Tally is the answer to the command counts.
type Tally struct {
	Passed map[Point]int `json:"passed"`
	Fired  map[Point]int `json:"fired"`
	Off    []Guard       `json:"off"`
}

// do carries out one line and returns the answer. A line that is wrong changes nothing.
func (k *kit) do(line string) string {
	answer, err := k.command(strings.Fields(line))
	if err != nil {
		return "error: " + err.Error()
	}
	return answer
}

func (k *kit) command(words []string) (string, error) {
	if len(words) == 0 {
		return "", fmt.Errorf("an empty line")
	}
	name, args := words[0], words[1:]
	switch name {
	case "off", "on":
		return "ok", k.turnAll(args, name == "off")
	case "arm":
		return "ok", k.armAs(args)
	case "disarm":
		for _, a := range args {
			if !slices.Contains(Points(), Point(a)) {
				return "", fmt.Errorf("disarm: no point %q", a)
			}
		}
		for _, a := range args {
			k.disarm(Point(a))
		}
		return "ok", nil
	case "counts":
		b, err := json.Marshal(k.counts())
		return string(b), err
	}
	return "", fmt.Errorf("no command %q", name)
}

func (k *kit) counts() Tally {
	off := k.turnedOff()
	k.mu.Lock()
	defer k.mu.Unlock()
	return Tally{maps.Clone(k.passed), maps.Clone(k.fired), off}
}

func (k *kit) turnAll(names []string, off bool) error {
	for _, n := range names {
		if !slices.Contains(Guards(), Guard(n)) {
			return fmt.Errorf("no guard %q", n)
		}
	}
	for _, n := range names {
		k.turn(Guard(n), off)
	}
	return nil
}

func (k *kit) armAs(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("arm: want a point and an action, got %q", args)
	}
	p := Point(args[0])
	if !slices.Contains(Points(), p) {
		return fmt.Errorf("arm: no point %q", p)
	}
	r := &rule{action: actions[args[1]]}
	if r.action == None {
		return fmt.Errorf("arm: no action %q", args[1])
	}
	for _, a := range args[2:] {
		if err := r.set(a); err != nil {
			return fmt.Errorf("arm: %w", err)
		}
	}
	if r.action == Delay && r.wait <= 0 {
		return fmt.Errorf("arm: a delay of %v", r.wait)
	}
	k.arm(p, r)
	return nil
}

func (r *rule) set(arg string) error {
	key, value, ok := strings.Cut(arg, "=")
	if !ok {
		return fmt.Errorf("%q is no key=value", arg)
	}
	var err error
	switch key {
	case "for":
		r.wait, err = time.ParseDuration(value)
		return err
	case "after":
		r.after, err = strconv.Atoi(value)
	case "times":
		r.times, err = strconv.Atoi(value)
	case "n":
		r.n, err = strconv.Atoi(value)
	default:
		return fmt.Errorf("no setting %q", key)
	}
	if err == nil && (r.after < 0 || r.times < 0) {
		err = fmt.Errorf("%q is negative", arg)
	}
	return err
}
