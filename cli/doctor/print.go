package doctor

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the report for a person: five tables, then the findings.
func (r Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	line := func(cells ...any) {
		texts := make([]string, len(cells))
		for i, c := range cells {
			if texts[i] = strings.Join(strings.Fields(fmt.Sprint(c)), " "); texts[i] == "" {
				texts[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(texts, "\t"))
	}
	line("ROUTER", "LISTED", "PROMISE", "EFFECTIVE", "LARGEST PAIR")
	for _, o := range r.Routers {
		line(o.ID, passing(o.Passing), o.Promise, r.Effective, r.Largest)
	}
	fmt.Fprintln(w)
	line("WORKER", "SERVICE", "STATE", "PROMISE", "DERIVED", "EFFECTIVE", "BROKER", "PAGES", "LAYOUT", "WEIGHTS", "NUMERICS", "GUARDS", "ANSWER MS")
	for _, o := range r.Workers {
		state, guards := "ready", "on"
		if !o.Ready {
			state = "not ready"
		} else if !o.Passing {
			state = "not passing"
		}
		if !o.GuardsOn {
			guards = "OFF"
		}
		line(o.ID, o.Service, state, o.Promise, o.Derived, o.Effective, o.Broker, o.Pages, o.Layout, o.Revision, o.Numerics, guards, o.AnswerMS)
	}
	fmt.Fprintln(w)
	line("BROKER", "LISTED", "INSTANCE", "PAGES", "FREE", "QUARANTINE", "LAYOUT", "WEIGHTS", "NUMERICS", "ANSWER MS")
	for _, o := range r.Brokers {
		line(o.ID, passing(o.Passing), o.Instance, o.Pages, o.Free, o.Quarantine, o.Layout, o.Revision, o.Numerics, o.AnswerMS)
	}
	fmt.Fprintln(w)
	line("PREFILL", "DECODE", "MOVER", "EFFECTIVE", "WHY NOT")
	for _, o := range r.Pairs {
		line(o.Prefill, o.Decode, o.Mover, o.Effective, o.Why)
	}
	fmt.Fprintln(w)
	if r.OK {
		fmt.Fprintln(w, "no finding")
	}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "FINDING %s %s: %s\n", f.Check, strings.TrimSuffix(f.Service+"/"+f.ID, "/"), strings.Join(strings.Fields(f.Text), " "))
	}
	return w.Flush()
}

func passing(yes bool) string {
	if yes {
		return "passing"
	}
	return "NOT PASSING"
}
