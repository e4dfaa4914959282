package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const (
		passA   = `{"Action":"pass","Package":"a","Test":"TestA"}`
		failB   = `{"Action":"fail","Package":"b","Test":"TestB"}`
		skipC   = `{"Action":"skip","Package":"c","Test":"TestC"}`
		failPkg = `{"Action":"fail","Package":"b"}`
		outB    = `{"Action":"output","Package":"b","Test":"TestB","Output":"b.go:1: want 2\n"}`
		panicP  = `{"Action":"output","Package":"d","Output":"panic: x\n"}`
		failD   = `{"Action":"fail","Package":"d"}`
	)
	for _, tt := range []struct {
		name string
		in   []string
		want count
		says string
	}{
		{"nothing ran", nil, count{}, ""},
		{"one passes", []string{passA}, count{passed: 1}, ""},
		{"a failed test counts once, and its package not again", []string{passA, outB, failB, failPkg}, count{passed: 1, failed: 1}, "want 2"},
		{"a package that breaks without a failed test counts", []string{passA, panicP, failD}, count{passed: 1, broken: 1}, "panic: x"},
		{"a skip is neither", []string{skipC}, count{skipped: 1}, ""},
		{"noise before the first event is shown", []string{"go: downloading", passA}, count{passed: 1}, "go: downloading"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			got, err := report(strings.NewReader(strings.Join(tt.in, "\n")), &out, true)
			if err != nil || got != tt.want {
				t.Errorf("report = %+v, %v, want %+v", got, err, tt.want)
			}
			if !strings.Contains(out.String(), tt.says) {
				t.Errorf("printed %q, want it to contain %q", out.String(), tt.says)
			}
		})
	}
}
