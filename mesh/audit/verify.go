package audit

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/proof"
)

// Place is a line of a file.
type Place struct {
	File string
	Line int // from 1; 0: the file as a whole
}

// String is file:line.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Finding is one flaw, and where it shows.
type Finding struct {
	Place
	Break
}

// String is file:line: flaw: text.
func (f Finding) String() string { return f.Place.String() + ": " + f.Error() }

// Report is what a look at one log has found.
type Report struct {
	Dir               string
	Service, Instance string
	Files             int
	Records           uint64 // in the files
	First, Last       Link   // of the records in the files
	Heads             int    // that are signed by a key given
	Head              Head   // the last of them
	Unsigned          uint64 // records above it: what is cut off there does not show here
	Rotated           uint64 // the records up to this one were removed by rotation, as a record says
	Lost              uint64 // records that the process could not write, as a record says
	Torn              int    // bytes of a line without its end at the end of the newest file: a crash, or a write under way
	OwnKey            bool   // the key came from the directory itself: whoever could write there could have put it there
	Findings          []Finding
}

// Verify reads the log in dir and holds it against its heads, and against more, which somebody has kept elsewhere. Heads must
// be signed by one of keys; without keys by the directory's own. each, if not nil, is called with every record that can be
// read, in the files' order. Flaws are in the report; an error says that there was nothing to look at, or it could not be read.
func Verify(dir string, keys []ed25519.PublicKey, more []Head, each func(*Record, Place) error) (*Report, error) {
	v := &verifier{r: &Report{Dir: dir}, want: map[uint64][]placedHead{}, each: each}
	if len(keys) == 0 {
		own, err := proof.ReadPublicKey(filepath.Join(dir, PublicFile))
		if err != nil {
			return nil, errs.New(errs.NotFound, "audit: %s has no readable key, and none was given: %v", dir, err)
		}
		keys, v.r.OwnKey = []ed25519.PublicKey{own}, true
	}
	if err := v.heads(keys); err != nil { // before the records, so that a log which is being written has them all
		return nil, err
	}
	v.kept(more, keys)
	files, err := segments(dir)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 && len(v.want) == 0 {
		return nil, errs.New(errs.NotFound, "audit: %s holds no log", dir)
	}
	for i, g := range files {
		if err := v.file(g, i == len(files)-1); err != nil {
			return nil, err
		}
	}
	v.conclude()
	return v.r, nil
}

type placedHead struct {
	Head
	at Place
}

type verifier struct {
	r     *Report
	chain Chain
	want  map[uint64][]placedHead // heads by record
	start Link                    // what the first record in the files is chained to
	first Place                   // of it
	end   Place                   // the last line
	gaps  []gap
	took  []removed // what rotation has said
	each  func(*Record, Place) error
}

// gap is a run of missing records, which may turn up later.
type gap struct {
	from, to uint64
	left     uint64
	finding  int
}

func (v *verifier) find(at Place, f Flaw, format string, args ...any) {
	v.r.Findings = append(v.r.Findings, Finding{at, Break{f, fmt.Sprintf(format, args...)}})
}

func (v *verifier) found(at Place, err error) {
	b := &Break{}
	if !errors.As(err, &b) {
		b = garbled("%v", err)
	}
	v.r.Findings = append(v.r.Findings, Finding{at, *b})
}

// heads reads the heads that the process signed.
func (v *verifier) heads(keys []ed25519.PublicKey) error {
	path := filepath.Join(v.r.Dir, headsFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		v.find(Place{path, 0}, BadHead, "there is no such file: nothing says how far the log must reach")
		return nil
	}
	if err != nil {
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	defer f.Close()
	n := 0
	_, _, err = eachLine(f, func(line []byte, _ int64) error {
		n++
		at := Place{path, n}
		h, err := ParseHead(line)
		if err == nil {
			err = h.Check(keys...)
		}
		if err != nil {
			v.find(at, BadHead, "%v", err)
			return nil
		}
		v.head(h, at)
		return nil
	})
	if err == nil && v.r.Heads == 0 {
		v.find(Place{path, 0}, BadHead, "no head in it can be trusted: nothing says how far the log must reach")
	}
	return errs.Mark(err, errs.Unavailable)
}

func (v *verifier) head(h Head, at Place) {
	v.r.Heads++
	v.same(at, h.Service, h.Instance)
	v.want[h.Seq] = append(v.want[h.Seq], placedHead{h, at})
	if h.Seq >= v.r.Head.Seq {
		v.r.Head = h
	}
}

// same holds a log to one process.
func (v *verifier) same(at Place, service, instance string) {
	if v.r.Service == "" {
		v.r.Service, v.r.Instance = service, instance
	}
	if service != v.r.Service || instance != v.r.Instance {
		v.find(at, Stranger, "it is of %s/%s, the log is of %s/%s", service, instance, v.r.Service, v.r.Instance)
	}
}

// kept takes heads from elsewhere. Those of other processes are not for this log.
func (v *verifier) kept(more []Head, keys []ed25519.PublicKey) {
	for _, h := range more {
		if v.r.Service != "" && (h.Service != v.r.Service || h.Instance != v.r.Instance) {
			continue
		}
		at := Place{"the kept head of record " + number(h.Seq), 0}
		if err := h.Check(keys...); err != nil {
			v.find(at, BadHead, "%v", err)
			continue
		}
		v.same(at, h.Service, h.Instance)
		v.want[h.Seq] = append(v.want[h.Seq], placedHead{h, at})
	}
}

// file follows the chain through one file.
func (v *verifier) file(g segment, newest bool) error {
	path, n := filepath.Join(v.r.Dir, g.name), 0
	f, err := os.Open(path)
	if err != nil {
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	defer f.Close()
	v.r.Files++
	rest, _, err := eachLine(f, func(line []byte, _ int64) error {
		n++
		v.end = Place{path, n}
		return v.line(g, line)
	})
	switch {
	case err != nil:
		return errs.Mark(err, errs.Unavailable)
	case len(rest) > 0 && newest:
		v.r.Torn = len(rest)
	case len(rest) > 0:
		v.find(Place{path, n + 1}, Garbled, "the file ends in the midst of a line, but is not the newest")
	}
	return nil
}

func (v *verifier) line(g segment, line []byte) error {
	at := v.end
	r, err := Decode(line)
	if err != nil {
		v.found(at, err)
	}
	if b := (*Break)(nil); errors.As(err, &b) && b.Flaw == Garbled {
		return nil // without a number or a hash that mean anything; the next record shows what is missing
	}
	if at.Line == 1 && r.Seq != g.first {
		v.find(at, Removed, "the file begins with record %d, its name says %d", r.Seq, g.first)
	}
	if v.r.Records++; v.r.Records == 1 {
		v.start, v.first = Link{r.Seq - 1, r.Prev}, at
		v.chain.Last, v.r.First = v.start, r.Link()
	}
	v.same(at, r.Service, r.Instance)
	v.follow(&r, at)
	if err == nil {
		v.known(&r, at)
	}
	if v.each == nil {
		return nil
	}
	return v.each(&r, at)
}

// follow holds the record against the one before. Records that are missing in one place and turn up in a later one were
// reordered, not removed.
func (v *verifier) follow(r *Record, at Place) {
	last := v.chain.Last.Seq
	broken := v.chain.Next(r)
	if broken == nil {
		return
	}
	v.found(at, broken)
	if r.Seq > last+1 {
		v.gaps = append(v.gaps, gap{last + 1, r.Seq - 1, r.Seq - 1 - last, len(v.r.Findings) - 1})
	}
	for i := range v.gaps {
		g := &v.gaps[i]
		if g.from > r.Seq || r.Seq > g.to {
			continue
		}
		if g.left--; g.left == 0 {
			f := &v.r.Findings[g.finding]
			f.Flaw, f.Text = Reordered, "comes too early: "+f.Text
		}
	}
}

// known holds an intact record against the heads that were signed over its number, and takes in what the log says of itself.
func (v *verifier) known(r *Record, at Place) {
	for _, h := range v.want[r.Seq] {
		if r.Hash != h.Hash {
			v.find(at, Rewritten, "record %d has hash %s, %s was signed over %s", r.Seq, short(r.Hash), h.at, short(h.Hash))
		}
	}
	switch r.Kind {
	case KindRemoved:
		var e removed
		if err := json.Unmarshal(r.Fields, &e); err != nil {
			v.find(at, Garbled, "%v", err)
			return
		}
		v.took = append(v.took, e)
	case KindLost:
		var e lost
		if err := json.Unmarshal(r.Fields, &e); err != nil {
			v.find(at, Garbled, "%v", err)
			return
		}
		v.r.Lost += e.Count
	}
}

// conclude looks at both ends of the log.
func (v *verifier) conclude() {
	v.r.Last = v.chain.Last
	highest, at := v.r.Last.Seq, Place{}
	for seq, heads := range v.want {
		if seq > highest {
			highest, at = seq, heads[0].at
		}
	}
	if highest > v.r.Last.Seq {
		end := v.end
		if v.r.Records == 0 {
			end = at
		}
		v.find(end, Cut, "the log ends at record %d, %s was signed at record %d", v.r.Last.Seq, at, highest)
	}
	if v.r.Last.Seq > v.r.Head.Seq {
		v.r.Unsigned = v.r.Last.Seq - v.r.Head.Seq
	}
	if v.r.Records == 0 || v.start.Seq == 0 && v.start.Hash == (Hash{}) {
		return
	}
	for _, e := range v.took {
		if e.Last == v.start.Seq && e.Hash == v.start.Hash {
			v.r.Rotated = e.Last
			return
		}
	}
	v.find(v.first, Removed, "the log begins with record %d, and no record says that those before were removed", v.r.First.Seq)
}
