package haul

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if Sending() {
		return
	}
	os.Exit(m.Run())
}

func TestEveryWayBringsThePages(t *testing.T) {
	for _, l := range []Load{{PageBytes: 32 << 10, Bytes: 8 << 20}, {PageBytes: 1_474_560, Bytes: 16 << 20}, {PageBytes: 1 << 20, Bytes: 8 << 20, InOrder: true}} {
		rows := Measure(t.Context(), l, Memcpy(1), Memcpy(2), ReadV(), Stream(Options{Conns: 1}), Stream(Options{Conns: 2}),
			Stream(Options{TLS: true, Conns: 2}), Ours("grpc", "grpc", Options{Conns: 1}), Ours("grpc_2", "grpc", Options{Conns: 2}), Ours("grpc_tls", "grpc", Options{TLS: true, Conns: 2}),
			Ours("grpc_raw", "grpc_raw", Options{Conns: 1}), Ours("grpc_raw_2", "grpc_raw", Options{Conns: 2}), Ours("grpc_raw_tls", "grpc_raw", Options{TLS: true, Conns: 2}),
			Ours("shm", "shm", Options{}), Ours("shm_copy", "shm_copy", Options{}))
		for _, r := range rows {
			if r.Error != "" || len(r.Runs) != Runs || r.Moved <= 0 || r.Most < r.Least {
				t.Errorf("%s: %+v", r.Way, r)
			}
			if ours := r.Checked == "digest"; ours != (r.Verified > 0) || ours && r.Verified > r.Most {
				t.Errorf("%s: %.2f GB/s moved, %.2f verified, checked by %s", r.Way, r.Moved, r.Verified, r.Checked)
			}
		}
	}
}

func TestAWayThatFailsHasARow(t *testing.T) {
	rows := Measure(t.Context(), Load{PageBytes: 32 << 10, Bytes: 1 << 20}, Ours("rdma", "rdma", Options{}), Memcpy(1))
	if rows[0].Error == "" || rows[0].Moved != 0 || rows[0].Way != "rdma" || rows[1].Error != "" {
		t.Errorf("%+v", rows)
	}
}

func TestCheckFindsOneWrongByte(t *testing.T) {
	p, err := newPages(Load{PageBytes: 32 << 10, Bytes: 1 << 20}, atDestination)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Pool.Close()
	p.fill()
	if err := p.check(); err != nil {
		t.Errorf("check after fill: %v", err)
	}
	p.Place(31)[32<<10-1] ^= 1
	if err := p.check(); err == nil {
		t.Error("a wrong byte is not found")
	}
}
