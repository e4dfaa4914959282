package lease

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

var rewrite = flag.Bool("rewrite", false, "write what the table does now into testdata/*.txt")

// TestTraces replays testdata/*.txt. A line is an event; the indented lines below it are its effects, or its error.
// Names stand for ids. A page's tag is page:slot/generation, with + when sealed, and a slot of - for Nobody.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			got, err := replay(string(b))
			if err != nil {
				t.Fatal(err)
			}
			if *rewrite {
				if err := os.WriteFile(f, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(strings.Split(string(b), "\n"), strings.Split(got, "\n")); d != "" && !*rewrite {
				t.Errorf("trace (-file +table):\n%s", d)
			}
		})
	}
}

func replay(script string) (string, error) {
	var out strings.Builder
	var tab *Table
	known := names{}
	for i, line := range strings.Split(strings.TrimRight(script, "\n"), "\n") {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c := parse(line)
		if c.verb == "pool" {
			var err error
			if tab, err = New(Config{Pages: c.num("pages"), Quota: c.num("quota"), QuarantineCap: c.num("cap"),
				Generation: uint64(c.num("generation"))}); err != nil {
				return "", err
			}
			continue
		}
		if tab == nil {
			return "", fmt.Errorf("line %d: no pool", i+1)
		}
		known.learn(c)
		for _, l := range c.run(tab) {
			fmt.Fprintln(&out, "  "+known.readable(l))
		}
		if err := tab.selfCheck(); err != nil {
			return "", fmt.Errorf("line %d: %q: %w", i+1, line, err)
		}
	}
	return out.String(), nil
}

type command struct {
	verb, subject string
	args          map[string]string
	rest          string // after a colon: a reason
}

func parse(line string) command {
	line, rest, _ := strings.Cut(line, ": ")
	c := command{args: map[string]string{}, rest: rest}
	for i, f := range strings.Fields(line) {
		switch k, v, ok := strings.Cut(f, "="); {
		case ok:
			c.args[k] = v
		case i == 0:
			c.verb = f
		case i == 1:
			c.subject = f
		default:
			c.args[f] = "yes"
		}
	}
	return c
}

func (c command) num(k string) uint32 {
	n, _ := strconv.ParseUint(c.args[k], 0, 32)
	return uint32(n)
}

func (c command) or(k, other string) string {
	if v, ok := c.args[k]; ok {
		return v
	}
	return other
}

func name16[T ~[16]byte](s string) (id T) {
	copy(id[:], s)
	return id
}

func nameOf[T ~[16]byte](id T) string { return strings.TrimRight(string(id[:]), "\x00") }

func (c command) ref() Ref {
	n, err := strconv.Atoi(c.or("epoch", "7"))
	if err != nil {
		panic(err)
	}
	return Ref{name16[ID](c.subject), name16[Attach](c.or("worker", "w")), uint64(n)}
}

// seals are written index:rows or index:rows:digest.
func (c command) seals() (out []PageSeal) {
	for s := range strings.SplitSeq(c.args["seals"], ",") {
		if s == "" {
			continue
		}
		f := strings.Split(s, ":")
		i, _ := strconv.Atoi(f[0])
		rows, _ := strconv.Atoi(f[1])
		n := PageSeal{uint32(i), uint32(rows), pagesum.Digest{byte(i + 1)}}
		if len(f) > 2 {
			d, _ := strconv.Atoi(f[2])
			n.Digest = pagesum.Digest{byte(d)}
		}
		out = append(out, n)
	}
	return out
}

func (c command) kind() errs.Kind {
	for k := errs.Internal; k <= errs.Corrupt; k++ {
		if k.String() == c.args["kind"] {
			return k
		}
	}
	return errs.Unavailable
}

func (c command) event() Event {
	id := name16[ID](c.subject)
	switch c.verb {
	case "attach":
		return Attached{name16[Attach](c.subject), c.subject, c.num("pid"), c.ref().Epoch}
	case "gone":
		return WorkerGone{name16[Attach](c.subject)}
	case "detached":
		return Detached{name16[Attach](c.subject)}
	case "reserve":
		role := map[string]Role{"solo": Solo, "destination": Destination, "source": Source}[c.args["role"]]
		_, fromSource := c.args["from-source"]
		return Reserve{id, name16[Attach](c.or("worker", "w")), role, c.or("tenant", "acme"), name16[Admission](c.or("admission", c.subject)),
			c.num("pages"), c.num("moved"), c.num("rows"), fromSource}
	case "seal":
		return Seal{c.ref(), c.seals()}
	case "finish":
		return Finish{c.ref(), c.seals(), c.num("rows")}
	case "pull-started":
		return PullStarted{id}
	case "pull-ended":
		return PullEnded{id, c.or("ok", "yes") == "yes"}
	case "arrived":
		return Arrived{id, c.num("place")}
	case "verify":
		return Verify{id}
	case "verified":
		return Verified{id}
	case "transfer-failed":
		return TransferFailed{id, c.kind(), c.rest}
	case "handover":
		return Handover{id, name16[ID](c.args["to"])}
	case "retired":
		return Retired{c.ref(), c.or("ok", "yes") == "yes", c.kind(), c.rest}
	case "expire":
		return Expire{id}
	case "revoke":
		return Revoke{id, c.kind(), c.rest}
	case "zeroed":
		var pages []uint32
		for f := range strings.SplitSeq(c.args["pages"], ",") {
			n, _ := strconv.Atoi(f)
			pages = append(pages, uint32(n))
		}
		return Zeroed{pages}
	case "drain":
		return Drain{c.rest}
	}
	return nil
}

func (c command) run(t *Table) (out []string) {
	switch c.verb {
	case "show":
		return show(t)
	case "check":
		if err := t.Check(c.ref()); err != nil {
			return []string{fmt.Sprintf("error %v: %v", errs.KindOf(err), err)}
		}
		return []string{"may use it"}
	}
	effects, err := t.Step(c.event())
	if err != nil {
		return []string{fmt.Sprintf("error %v: %v", errs.KindOf(err), err)}
	}
	for _, e := range effects {
		out = append(out, describe(e))
	}
	return out
}

// readable turns hashes back into the script's names.
func (n names) readable(s string) string {
	for hash, name := range n {
		s = strings.ReplaceAll(s, hash, name)
	}
	return s
}

// names of the script by how errors show them.
type names map[string]string

func (n names) learn(c command) {
	words := []string{c.subject, c.or("worker", "w"), c.or("admission", c.subject), c.args["to"]}
	for _, w := range words {
		n[name16[ID](w).String()] = w
		n[name16[Admission](w).String()] = w
	}
}

func show(t *Table) (out []string) {
	s := t.Snapshot()
	line := "pages"
	for st, n := range s.States {
		if n > 0 {
			line += fmt.Sprintf(" %v=%d", State(st), n)
		}
	}
	out = append(out, line)
	for _, l := range s.Leases {
		out = append(out, fmt.Sprintf("lease %s of %s at %s: %v %v pages=%d rows=%d movers=%d working=%v", nameOf(l.Lease), l.Tenant, l.Worker,
			l.Role, l.State, l.Pages, l.Rows, l.Movers, l.Working))
	}
	for _, n := range s.Tenants {
		out = append(out, fmt.Sprintf("tenant %s pages=%d quota=%d", n.Tenant, n.Pages, n.Quota))
	}
	for _, w := range s.Workers {
		out = append(out, fmt.Sprintf("worker %s epoch=%d leases=%d", w.Worker, w.Epoch, w.Leases))
	}
	if s.Draining != "" {
		out = append(out, "draining: "+s.Draining)
	}
	return out
}

func describe(e Effect) string {
	switch e := e.(type) {
	case WriteTags:
		return "tags" + tagList(e.Tags)
	case Granted:
		return fmt.Sprintf("granted %s epoch=%d%s", nameOf(e.Lease), e.Epoch, tagList(e.Pages))
	case Revoked:
		return fmt.Sprintf("revoked %s at %s: %v: %s", nameOf(e.Lease), nameOf(e.Attach), e.Kind, e.Reason)
	case EndPull:
		return fmt.Sprintf("end-pull %s: %v: %s", nameOf(e.Lease), e.Kind, e.Reason)
	case Zero:
		s := fmt.Sprintf("zero %s %v", nameOf(e.Lease), e.Pages)
		if len(e.Seals) > 0 {
			s += " seals"
		}
		for _, n := range e.Seals {
			s += fmt.Sprintf(" %d:%d:%d", n.Index, n.Rows, n.Digest[0])
		}
		return s
	case Record:
		s := fmt.Sprintf("record %v %s of %s: %v pages=%d", e.Kind, nameOf(e.Lease), e.Tenant, e.Role, e.Pages)
		if e.Reason != "" {
			s += ": " + e.Reason
		}
		return s
	case Draining:
		if e.Reason == "" {
			return "granting again"
		}
		return "draining: " + e.Reason
	case Ignored:
		return strings.TrimSpace("ignored "+nameOf(e.Lease)) + ": " + e.Reason
	}
	return fmt.Sprintf("unknown effect %T", e)
}

func tagList(tags []PageTag) (s string) {
	for _, n := range tags {
		s += fmt.Sprintf(" %d:%s", n.Page, tagText(n.Tag))
	}
	return s
}

func tagText(g pool.Tag) string {
	if g == 0 {
		return "-"
	}
	slot, mark := "-", ""
	if g.Slot() != pool.Nobody {
		slot = strconv.Itoa(int(g.Slot()))
	}
	if g.Sealed() {
		mark = "+"
	}
	return fmt.Sprintf("%s/%d%s", slot, g.Generation(), mark)
}
