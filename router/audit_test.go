package router

import (
	"bytes"
	"testing"

	"leasehold.dev/mesh/audit/audittest"
)

func TestReceiptsCarryTheLogsSignedHead(t *testing.T) {
	if auditHead(nil) != nil {
		t.Error("without a log there is a head")
	}
	l := audittest.Open(t, "router", "r1")
	want, ok := l.Head()
	if got := auditHead(l.Log)(); !ok || got.Sequence != want.Seq || !bytes.Equal(got.Hash, want.Hash[:]) {
		t.Errorf("head %+v, want that of record %d", got, want.Seq)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := auditHead(l.Log)(); got.Sequence != want.Seq+1 {
		t.Errorf("after the end: head of record %d, want %d", got.Sequence, want.Seq+1)
	}
}
