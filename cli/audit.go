package cli

import (
	"context"
	"crypto/ed25519"
	"os"
	"strings"

	"leasehold.dev/mesh/audit"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/proof"
)

type auditGroup struct {
	Verify   auditVerify   `cmd:"" help:"Find an edit, a reorder, a removed record, and a cut below a signed head. Fails when there is one."`
	Affected auditAffected `cmd:"" help:"List responses, and the tenants whose pages they could have read. Fails when the logs do not say all."`
}

// auditLogs are the logs that a command reads.
type auditLogs struct {
	Dirs []string `arg:"" name:"dir" help:"Log of a process, or folder of such; up keeps them in audit." type:"existingdir"`
	Key  []string `help:"Public key, kept elsewhere, that heads must be signed by; each log's own when absent, which whoever changed the log could have changed." type:"existingfile" placeholder:"FILE"`
	Head []string `help:"File of signed heads, one a line, kept elsewhere: the logs must reach them." type:"existingfile" placeholder:"FILE"`
}

// read verifies every log, prints each finding as file:line: flaw: text, and gives each every record. The error says how
// many findings there were.
func (l *auditLogs) read(s streams, each func(*audit.Record, audit.Place) error) (reports []*audit.Report, err error) {
	keys, heads, err := l.kept()
	if err != nil {
		return nil, err
	}
	findings := 0
	met := map[string]bool{}
	for _, arg := range l.Dirs {
		dirs, err := audit.Logs(arg)
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			r, err := audit.Verify(dir, keys, heads, each)
			if err != nil {
				return nil, err
			}
			for _, f := range r.Findings {
				s.sayf("%v", f)
			}
			findings += len(r.Findings)
			met[r.Service+"/"+r.Instance] = true
			reports = append(reports, r)
		}
	}
	for _, h := range heads {
		if who := h.Service + "/" + h.Instance; !met[who] {
			findings++
			s.sayf("the kept head of record %d: cut: there is no log of %s, whose it is", h.Seq, who)
		}
	}
	if findings > 0 {
		return reports, errs.New(errs.Corrupt, "%d findings in %d audit logs", findings, len(reports))
	}
	return reports, nil
}

// kept reads what was kept elsewhere.
func (l *auditLogs) kept() (keys []ed25519.PublicKey, heads []audit.Head, err error) {
	for _, file := range l.Key {
		k, err := proof.ReadPublicKey(file)
		if err != nil {
			return nil, nil, errs.New(errs.Invalid, "--key: %w", err)
		}
		keys = append(keys, k)
	}
	for _, file := range l.Head {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, errs.New(errs.Invalid, "--head: %w", err)
		}
		for line := range strings.Lines(string(b)) {
			h, err := audit.ParseHead([]byte(strings.TrimSpace(line)))
			if err != nil {
				return nil, nil, errs.New(errs.Invalid, "--head: %s: %v", file, err)
			}
			heads = append(heads, h)
		}
	}
	return keys, heads, nil
}

type auditVerify struct {
	auditLogs
}

// Run reads every log to its end.
func (c *auditVerify) Run(_ context.Context, s streams) error {
	reports, err := c.read(s, nil)
	for _, r := range reports {
		s.sayf("%s/%s: records %d to %d in %d files, %d heads, the last at record %d", r.Service, r.Instance, r.First.Seq, r.Last.Seq, r.Files, r.Heads, r.Head.Seq)
		for _, n := range notes(r) {
			s.sayf("  note: %s", n)
		}
	}
	if err == nil {
		s.sayf("%d audit logs are as they were written", len(reports))
	}
	return err
}
