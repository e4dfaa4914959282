package cli

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// print writes three tables: processes, pools, and the leases if there are any.
func (v *view) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	line := func(cells ...any) {
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = cell(fmt.Sprint(c))
		}
		fmt.Fprintln(w, strings.Join(texts, "\t"))
	}
	line("SERVICE", "ID", "ADDRESS", "BROKER", "PAGES USED", "RUNNING", "PROMISE/LIMIT", "STATE")
	for _, r := range v.services {
		line(r.Service, r.ID, r.Address, r.broker, r.pages, r.running, r.promise, r.state)
	}
	fmt.Fprintln(w)
	line("BROKER", "INSTANCE", "PAGES", "FREE", "WRITING", "SEALED", "STAGED", "OWNED", "QUARANTINE")
	for _, d := range v.brokers {
		p := d.GetPool()
		line(d.GetIdentity().GetName(), short(d.GetIdentity().GetInstance()), p.GetPages(), p.GetFree(), p.GetWriting(), p.GetSealed(),
			p.GetStaged()+p.GetVerifying(), p.GetOwned(), p.GetQuarantine())
	}
	fmt.Fprintln(w)
	v.printLeases(w, line)
	return w.Flush()
}

func (v *view) printLeases(w io.Writer, line func(...any)) {
	head := false
	for _, d := range v.brokers {
		for _, l := range d.GetLeases() {
			if !head {
				line("BROKER", "LEASE", "TENANT", "WORKER", "ROLE", "STATE", "PAGES", "ROWS", "AGE")
				head = true
			}
			age := (time.Duration(l.GetAgeMs()) * time.Millisecond).Round(100 * time.Millisecond)
			line(d.GetIdentity().GetName(), short(l.GetLeaseHash()), l.GetTenant(), l.GetWorker(), role(l.GetRole()), l.GetState(), l.GetPages(), l.GetRows(), age)
		}
	}
	if !head {
		fmt.Fprintln(w, "no leases")
	}
}

// cell is one line and never empty: a table whose cells are empty cannot be cut into fields.
func cell(s string) string {
	if s = strings.Join(strings.Fields(s), " "); s == "" {
		return "-"
	}
	return s
}

func role(r brokerv1.Role) string { return strings.ToLower(strings.TrimPrefix(r.String(), "ROLE_")) }

func short(b []byte) string { return hex.EncodeToString(b[:min(6, len(b))]) }
