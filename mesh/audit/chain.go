package audit

import (
	"fmt"
	"strconv"
)

// Flaw is what is wrong with a log.
type Flaw string

// The flaws.
const (
	Garbled   Flaw = "garbled"   // a line that is no record
	Edited    Flaw = "edited"    // a record's bytes are not those that were hashed, or not those that the next one is chained to
	Removed   Flaw = "removed"   // records are missing
	Reordered Flaw = "reordered" // a record comes later than it was written, or twice
	Cut       Flaw = "cut"       // the log ends below a signed head
	Rewritten Flaw = "rewritten" // a record is not the one that a head was signed over
	BadHead   Flaw = "head"      // a head that cannot be trusted, or none
	Stranger  Flaw = "stranger"  // a record or head of another process
)

// Break is where a log stops to be what its process wrote. It is an error.
type Break struct {
	Flaw Flaw
	Text string
}

func (b *Break) Error() string { return string(b.Flaw) + ": " + b.Text }

func garbled(format string, args ...any) *Break { return &Break{Garbled, fmt.Sprintf(format, args...)} }

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func short(h Hash) string { return h.String()[:12] }

// Chain follows records from one to the next. The zero value expects record 1.
type Chain struct {
	// Last is the newest record that was seen, in the order in which they were written.
	Last Link
}

// Next holds r against what came before it. After a Break the chain goes on behind r, so that what follows is judged by
// itself; a record that comes too late leaves it where it was.
func (c *Chain) Next(r *Record) error {
	last := c.Last
	if r.Seq <= last.Seq {
		return &Break{Reordered, fmt.Sprintf("record %d comes after record %d", r.Seq, last.Seq)}
	}
	c.Last = r.Link()
	switch {
	case r.Seq > last.Seq+1:
		return &Break{Removed, fmt.Sprintf("%s missing before record %d", span(last.Seq+1, r.Seq-1), r.Seq)}
	case r.Prev != last.Hash:
		return &Break{Edited, fmt.Sprintf("record %d is chained to %s, but record %d has hash %s", r.Seq, short(r.Prev), last.Seq, short(last.Hash))}
	}
	return nil
}

func span(from, to uint64) string {
	if from == to {
		return "record " + number(from) + " is"
	}
	return fmt.Sprintf("records %d to %d are", from, to)
}
