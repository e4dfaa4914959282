package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"leasehold.dev/protos/errs"
)

// maxLine bounds what a reader takes for one line. The longest that is written names each page of a lease by itself.
const maxLine = 64 << 20

// eachLine calls f with every line of r, without its end, and its offset. What follows the last end of line is torn.
func eachLine(r io.Reader, f func(line []byte, offset int64) error) (torn []byte, at int64, err error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	s.Split(func(data []byte, end bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1, data[:i+1], nil
		}
		if end && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	for s.Scan() {
		line := s.Bytes()
		if line[len(line)-1] != '\n' {
			return bytes.Clone(line), at, nil
		}
		if err := f(line[:len(line)-1], at); err != nil {
			return nil, at, err
		}
		at += int64(len(line))
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return nil, at, garbled("a line of more than %d bytes", maxLine)
	}
	return nil, at, s.Err()
}

// segment is one file of a log.
type segment struct {
	name  string
	first uint64 // number of its first record, by its name
}

// Logs are the directories of logs among dir and what is directly in it. NotFound: there is none.
func Logs(dir string) ([]string, error) {
	if isLog(dir) {
		return []string{dir}, nil
	}
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, errs.New(errs.NotFound, "audit: %w", err)
	}
	var out []string
	for _, e := range all {
		if d := filepath.Join(dir, e.Name()); e.IsDir() && isLog(d) {
			out = append(out, d)
		}
	}
	if len(out) == 0 {
		return nil, errs.New(errs.NotFound, "audit: neither %s nor a directory in it holds a log", dir)
	}
	return out, nil
}

// isLog is true as long as anything is left of a log.
func isLog(dir string) bool {
	for _, name := range []string{lockFile, headsFile, PublicFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	all, err := segments(dir)
	return err == nil && len(all) > 0
}

const (
	segmentPrefix = "audit-"
	segmentSuffix = ".jsonl"
	segmentDigits = 20
)

func segmentName(first uint64) string {
	return fmt.Sprintf("%s%0*d%s", segmentPrefix, segmentDigits, first, segmentSuffix)
}

// segments are the files of the log in dir, oldest first.
func segments(dir string) ([]segment, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, errs.New(errs.Unavailable, "audit: %w", err)
	}
	var out []segment
	for _, e := range all {
		digits, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), segmentSuffix), segmentPrefix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || n == 0 || e.Name() != segmentName(n) {
			return nil, errs.New(errs.Corrupt, "audit: %s: no name of a log file", filepath.Join(dir, e.Name()))
		}
		out = append(out, segment{e.Name(), n})
	}
	slices.SortFunc(out, func(a, b segment) int { return strings.Compare(a.name, b.name) })
	return out, nil
}
