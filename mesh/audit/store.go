package audit

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"leasehold.dev/protos/errs"
)

// store is the files of one log, for its one writer. It is not safe for concurrent use.
type store struct {
	dir  string
	key  ed25519.PrivateKey
	lock *os.File
	all  []segment
	file *os.File // the newest of all; nil until the first write
	size int64    // of file, up to the last whole line
	last Link     // the newest record on disk
	head Head     // the newest in heads
	torn []torn   // what the run before left, cut off and not recorded yet

	heads    *os.File
	headSize int64
}

// openStore claims dir and finds the end of its chain.
func openStore(dir string) (_ *store, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errs.New(errs.Unavailable, "audit: %w", err)
	}
	s := &store{dir: dir}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.lock, err = os.OpenFile(s.path(lockFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, errs.New(errs.Unavailable, "audit: %w", err)
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errs.New(errs.Unavailable, "audit: another process writes the log in %s: %w", dir, err)
	}
	if s.all, err = segments(dir); err != nil {
		return nil, err
	}
	if s.key, err = openKey(dir, len(s.all) == 0); err != nil {
		return nil, err
	}
	if err := s.openHeads(); err != nil {
		return nil, err
	}
	if err := s.findEnd(); err != nil {
		return nil, err
	}
	return s, s.fits()
}

func (s *store) path(name string) string { return filepath.Join(s.dir, name) }

func (s *store) close() {
	for _, f := range []*os.File{s.file, s.heads, s.lock} {
		if f != nil {
			_ = f.Close() // synced before, where it matters
		}
	}
}

// openHeads finds the last head.
func (s *store) openHeads() (err error) {
	if s.heads, err = os.OpenFile(s.path(headsFile), os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	var last []byte
	rest, at, err := eachLine(s.heads, func(line []byte, _ int64) error { last = bytes.Clone(line); return nil })
	if err != nil {
		return errs.New(errs.Unavailable, "audit: %s: %w", s.path(headsFile), err)
	}
	if s.headSize = at; len(rest) > 0 {
		s.torn = append(s.torn, torn{headsFile, at, rest})
	}
	if last == nil {
		return nil
	}
	if s.head, err = ParseHead(last); err != nil {
		return err
	}
	return s.head.Check(s.key.Public().(ed25519.PublicKey))
}

// findEnd reads the newest file that has a record. A file without one was begun in the last moment of a run.
func (s *store) findEnd() error {
	for i := len(s.all) - 1; i >= 0 && s.last.Seq == 0; i-- {
		if err := s.readEnd(s.all[i]); err != nil {
			return err
		}
	}
	if len(s.all) == 0 {
		return nil
	}
	newest := s.all[len(s.all)-1]
	f, err := os.OpenFile(s.path(newest.name), os.O_RDWR, 0)
	if err != nil {
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	s.file = f
	if s.size, err = f.Seek(0, io.SeekEnd); err != nil {
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	for _, t := range s.torn {
		switch t.File {
		case newest.name:
			s.size = t.Offset // what is behind is cut off before the next record is written
		case headsFile:
		default:
			return errs.New(errs.Corrupt, "audit: %s ends in the midst of a line, but is not the newest file", s.path(t.File))
		}
	}
	return nil
}

// readEnd follows the chain through one file. Only a last line without its end is what a crash can leave.
func (s *store) readEnd(g segment) error {
	f, err := os.Open(s.path(g.name))
	if err != nil {
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	defer f.Close()
	chain, n := Chain{}, 0
	rest, at, err := eachLine(f, func(line []byte, _ int64) error {
		n++
		r, err := Decode(line)
		if err == nil && n == 1 {
			chain.Last = Link{r.Seq - 1, r.Prev}
		}
		if err == nil {
			err = chain.Next(&r)
		}
		if err != nil {
			return errs.New(errs.Corrupt, "audit: %s:%d: %w: move the log away, as evidence, and start a new one", s.path(g.name), n, err)
		}
		if r.Seq == s.head.Seq && r.Hash != s.head.Hash {
			return errs.New(errs.Corrupt, "audit: %s:%d: %s: record %d is not the one that its head was signed over", s.path(g.name), n, Rewritten, r.Seq)
		}
		return nil
	})
	if err != nil {
		return errs.Mark(err, errs.Unavailable)
	}
	if len(rest) > 0 {
		s.torn = append(s.torn, torn{g.name, at, rest})
	}
	s.last = chain.Last
	return nil
}

// fits holds the end that was found against the last head.
func (s *store) fits() error {
	if s.head.Seq > s.last.Seq {
		return errs.New(errs.Corrupt, "audit: %s: %s: the log ends at record %d, its head was signed at record %d", s.dir, Cut, s.last.Seq, s.head.Seq)
	}
	return nil
}

// write appends whole lines that end at last, all or none.
func (s *store) write(lines []byte, last Link) error {
	if s.file == nil {
		if err := s.begin(); err != nil {
			return err
		}
	}
	if err := putAt(s.file, s.size, lines); err != nil {
		return err
	}
	s.size, s.last = s.size+int64(len(lines)), last
	return nil
}

// putAt writes b at the end of f, which is at size. Whatever a failed try has left behind is cut off first.
func putAt(f *os.File, size int64, b []byte) error {
	err := f.Truncate(size)
	if err == nil {
		_, err = f.WriteAt(b, size)
	}
	if err != nil {
		_ = f.Truncate(size) // so that no reader meets half a line; tried again before the next write
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	return nil
}

// begin starts the file of the next record.
func (s *store) begin() error {
	g := segment{segmentName(s.last.Seq + 1), s.last.Seq + 1}
	f, err := os.OpenFile(s.path(g.name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	s.file, s.size = f, 0
	s.all = append(s.all, g)
	return s.syncDir()
}

// rotate ends the newest file.
func (s *store) rotate() error {
	if err := s.sync(); err != nil {
		return err
	}
	_ = s.file.Close() // synced
	s.file, s.size = nil, 0
	return nil
}

func (s *store) sync() error {
	if s.file == nil {
		return nil
	}
	return errs.Mark(s.file.Sync(), errs.Unavailable)
}

func (s *store) syncDir() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	return errs.Mark(errors.Join(d.Sync(), d.Close()), errs.Unavailable)
}

// sign puts h, which is of the newest record, into the heads. The records are on disk before.
func (s *store) sign(b headBody) error {
	if err := s.sync(); err != nil {
		return err
	}
	h, err := sign(s.key, b)
	if err != nil {
		return err
	}
	line, err := json.Marshal(h)
	if err != nil {
		return errs.New(errs.Internal, "audit: head: %w", err)
	}
	line = append(line, '\n')
	if err := putAt(s.heads, s.headSize, line); err != nil {
		return err
	}
	s.headSize += int64(len(line))
	if err := s.heads.Sync(); err != nil {
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	s.head = h
	return nil
}

// oldest is what the removal of the n oldest files must say. No file is open.
func (s *store) oldest(n int) (removed, error) {
	var out removed
	for _, g := range s.all[:n] {
		out.Files = append(out.Files, g.name)
	}
	if n == len(s.all) {
		out.Last, out.Hash = s.last.Seq, s.last.Hash
		return out, nil
	}
	g := s.all[n]
	f, err := os.Open(s.path(g.name))
	if err != nil {
		return out, errs.New(errs.Unavailable, "audit: %w", err)
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadBytes('\n')
	if err != nil {
		return out, errs.New(errs.Unavailable, "audit: %s: %w", s.path(g.name), err)
	}
	r, err := Decode(line[:len(line)-1])
	if err != nil {
		return out, errs.New(errs.Corrupt, "audit: %s:1: %w", s.path(g.name), err)
	}
	out.Last, out.Hash = r.Seq-1, r.Prev
	return out, nil
}

// remove carries out what a signed record has said.
func (s *store) remove(r removed) error {
	for _, name := range r.Files {
		if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.New(errs.Unavailable, "audit: %w", err)
		}
	}
	s.all = s.all[len(r.Files):]
	return s.syncDir()
}
