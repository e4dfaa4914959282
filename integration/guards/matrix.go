package guards

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/fault"
)

// row is one guard and the attack that it exists for.
type row struct {
	guard  fault.Guard
	attack *Attack
	with   []fault.Guard // that this one does its work through; on with it in the column "only this one"
	why    string        // of with
	quiet  string        // why nothing need turn red with this one off; empty: something must
	clean  bool          // alone it does not end the request, but makes it harmless
}

// rows is the matrix.
func rows() []row {
	return []row{
		{guard: fault.LimitRouter, attack: stub},
		{guard: fault.LimitPrefill, attack: stub},
		{guard: fault.LimitDecode, attack: overDecode},
		{guard: fault.Counts, attack: stub},
		{guard: fault.Digest, attack: wrongPage},
		{guard: fault.MAC, attack: forged},
		{guard: fault.PromptDigest, attack: stub},
		{guard: fault.Epoch, attack: oldEpoch},
		{guard: fault.TagRead, attack: lateReader},
		{guard: fault.TagWrite, attack: lateWriter, clean: true},
		{guard: fault.Nobody, attack: early, clean: true}, // decode fails at once, and another pair may answer
		{guard: fault.Length, attack: longer},
		{guard: fault.Zero, attack: stub, clean: true},
		{guard: fault.Quarantine, attack: lateWriter, clean: true},
		{guard: fault.Verdict, attack: stub},
	}
}

// column says which guards are off.
type column struct {
	name string
	off  func(row) []fault.Guard
}

func columns() []column {
	return []column{
		{"all on", func(row) []fault.Guard { return nil }},
		{"this one off", func(r row) []fault.Guard { return []fault.Guard{r.guard} }},
		{"only this one on", func(r row) []fault.Guard {
			return slices.DeleteFunc(fault.Guards(), func(g fault.Guard) bool { return g == r.guard || slices.Contains(r.with, g) })
		}},
		{"all off", func(row) []fault.Guard { return fault.Guards() }},
	}
}

// Cell is one run.
type Cell struct {
	Guard, Attack, Column string
	Seen
	Took  time.Duration
	Wrong string // empty: as it must be
	Note  string
}

func (c Cell) String() string {
	word := "as it must be"
	if c.Wrong != "" {
		word = "NOT as it must be: " + c.Wrong
	}
	spoke := c.Ended
	if c.Column == "all off" && c.Own < canary.Answer {
		spoke = strings.TrimPrefix(spoke+fmt.Sprintf("; the canary, whose prompt this is: %d of %d right", c.Own, canary.Answer), "; ")
	}
	if len(c.Red) > 0 {
		spoke = strings.TrimPrefix(spoke+"; ", "; ") + strings.Join(c.Red, ", ")
	}
	if spoke == "" {
		spoke = "nobody spoke"
	}
	if c.Note != "" {
		word += " (" + c.Note + ")"
	}
	return fmt.Sprintf("%-20s %-17s own %2d foreign %2d  %4.1f s  %s: %s", strings.TrimPrefix(c.Guard, "guard:"), c.Column, c.Own, c.Foreign, c.Took.Seconds(), word, short(spoke))
}

func short(s string) string {
	if len(s) > 260 {
		return s[:260] + "..."
	}
	return s
}

// judgeCell says what is wrong with a run, given what the column is to show.
func judgeCell(r row, column string, s Seen) (wrong, note string) {
	red := s.Ended != "" || len(s.Red) > 0
	switch column {
	case "all on":
		switch {
		case s.Foreign > 0:
			return "another tenant's markers came out", ""
		case !red:
			return "nothing turned red", ""
		}
	case "this one off":
		switch {
		case s.Foreign > 0:
			return "another tenant's markers came out", ""
		case !red && r.quiet == "":
			return "nothing turned red", ""
		case !red:
			return "", r.quiet
		}
	case "only this one on":
		switch {
		case s.Foreign > 0:
			return "it alone does not stop it", r.why
		case s.Ended == "" && !r.clean && r.attack.never == "":
			return "the request was answered", r.why
		}
		return "", r.why
	case "all off":
		switch {
		case r.attack.never != "" && s.Foreign == 0:
			return "", r.attack.never
		case r.attack.never != "":
			return "markers came out where it was said that they cannot", ""
		case s.Foreign == 0:
			return "no foreign marker came out: the attack proves nothing", ""
		}
	}
	return "", ""
}

// Run runs the matrix and tells each cell as it comes.
func Run(ctx context.Context, setup scenario.Setup, tell func(Cell)) error {
	dir, err := os.MkdirTemp("", "leasehold-guards")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if setup.Model, err = writeModel(dir); err != nil {
		return err
	}
	setup.Cache = dir
	for _, limits := range []bool{true, false} {
		if err := half(ctx, setup, limits, tell); err != nil {
			return err
		}
	}
	return nil
}

// half runs the rows whose attack is on one of the two meshes. A mesh on which a run went wrong is given up.
func half(ctx context.Context, setup scenario.Setup, limits bool, tell func(Cell)) (err error) {
	var s *stage
	defer func() {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	done := map[*Attack]map[string]Cell{} // runs of an attack that are the same for each guard
	for _, r := range rows() {
		if r.attack.limits != limits {
			continue
		}
		for _, c := range columns() {
			common := c.name == "all on" || c.name == "all off"
			cell, ran := done[r.attack][c.name]
			if !common || !ran {
				if s == nil {
					if s, err = open(ctx, setup, limits); err != nil {
						return err
					}
				}
				cell = s.cell(ctx, r, c)
				if cell.Wrong != "" {
					_ = s.Close()
					s = nil
				}
			}
			cell.Guard = string(r.guard)
			if common && !ran {
				if done[r.attack] == nil {
					done[r.attack] = map[string]Cell{}
				}
				done[r.attack][c.name] = cell
			}
			tell(cell)
		}
	}
	return nil
}

// cell is one run: the pools filled, the guards set, the attack, the alarms.
func (s *stage) cell(ctx context.Context, r row, c column) Cell {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute is over"))
	defer cancel()
	out := Cell{Guard: string(r.guard), Attack: r.attack.Name, Column: c.name}
	start := time.Now()
	seen, err := s.attack(ctx, r, c.off(r))
	out.Took, out.Seen = time.Since(start), seen
	if err != nil {
		out.Wrong = "it could not be run: " + err.Error()
		return out
	}
	out.Wrong, out.Note = judgeCell(r, c.name, seen)
	return out
}

func (s *stage) attack(ctx context.Context, r row, off []fault.Guard) (Seen, error) {
	if err := errors.Join(s.Guards(fault.Zero, fault.LimitPrefill), s.ready(ctx)); err != nil {
		return Seen{}, err
	}
	if slices.Contains(off, fault.Zero) {
		if err := s.fill(ctx); err != nil {
			return Seen{}, fmt.Errorf("the other tenant's prompts: %w", err)
		}
	}
	if err := s.Guards(off...); err != nil {
		return Seen{}, err
	}
	if !slices.Contains(off, fault.Zero) {
		if err := s.fillOnly(ctx, off); err != nil {
			return Seen{}, fmt.Errorf("the other tenant's prompts: %w", err)
		}
	}
	if !r.attack.limits || slices.Contains(off, fault.LimitPrefill) {
		if err := s.ready(ctx); err != nil {
			return Seen{}, err
		}
	}
	before, err := s.Alarms(ctx)
	if err != nil {
		return Seen{}, err
	}
	s.before = map[string]int{}
	for _, d := range s.Decodes {
		t, err := s.Tally("decode/" + d.ID)
		if err != nil {
			return Seen{}, err
		}
		s.before["decode/"+d.ID] = t.Passed[fault.DecodeToken]
	}
	seen, err := r.attack.run(s, ctx)
	if err != nil {
		return seen, err
	}
	if err := errors.Join(s.Calm(), s.settled(ctx)); err != nil {
		return seen, err
	}
	seen.Red, err = s.alarmed(ctx, before, len(off) == len(fault.Guards()))
	return seen, err
}

// alarmed is the alarms that rose. With every guard off only detectors are left, which look afterwards: they get a while.
func (s *stage) alarmed(ctx context.Context, before map[string]float64, wait bool) (red []string, err error) {
	bounded := within(ctx, 4*time.Second)
	_ = scenario.Until(bounded, func() error { // that nobody speaks is a result too
		var after map[string]float64
		if after, err = s.Alarms(ctx); err == nil {
			red = scenario.Rose(before, after)
		}
		if err == nil && wait && len(red) == 0 {
			return errors.New("nobody has spoken")
		}
		return nil
	})
	return red, err
}
