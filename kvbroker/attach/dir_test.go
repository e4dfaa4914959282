package attach

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"leasehold.dev/protos/errs"
)

func TestPrepareDir(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(t *testing.T, dir string)
		want errs.Kind
		ok   bool
	}{
		{name: "not there", make: func(*testing.T, string) {}, ok: true},
		{name: "ours and 0700", make: mkdir(0o700), ok: true},
		{name: "readable by the group", make: mkdir(0o740), want: errs.Denied},
		{name: "open to all", make: mkdir(0o777), want: errs.Denied},
		{name: "narrower than 0700", make: mkdir(0o500), want: errs.Denied},
		{name: "a file", make: func(t *testing.T, dir string) { write(t, dir) }, want: errs.Denied},
		{name: "a link to a good one", make: func(t *testing.T, dir string) {
			mkdir(0o700)(t, dir+".real")
			if err := os.Symlink(dir+".real", dir); err != nil {
				t.Fatal(err)
			}
		}, want: errs.Denied},
		{name: "no parent", make: func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Dir(dir)); err != nil {
				t.Fatal(err)
			}
		}, want: errs.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(testDir(t), "run")
			tt.make(t, dir)
			err := PrepareDir(dir)
			if (err == nil) != tt.ok || (err != nil && errs.KindOf(err) != tt.want) {
				t.Fatalf("PrepareDir = %v, want ok %v, kind %v", err, tt.ok, tt.want)
			}
			if !tt.ok {
				return
			}
			if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
				t.Errorf("directory has mode %v, %v, want 0700", st.Mode(), err)
			}
		})
	}
}

func TestDirOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := testDir(t)
	if err := os.Chown(dir, 4242, 4242); err != nil {
		t.Fatal(err)
	}
	if err := CheckDir(dir); errs.KindOf(err) != errs.Denied {
		t.Errorf("CheckDir = %v, want denied", err)
	}
	if _, err := Listen(dir, nil); errs.KindOf(err) != errs.Denied {
		t.Errorf("Listen = %v, want denied", err)
	}
	if _, err := ListenWorker(dir); errs.KindOf(err) != errs.Denied {
		t.Errorf("ListenWorker = %v, want denied", err)
	}
	if _, err := Dial(t.Context(), dir, "p0", Want{}); errs.KindOf(err) != errs.Denied {
		t.Errorf("Dial = %v, want denied", err)
	}
}

func TestSocketsOfADeadBrokerAreReplaced(t *testing.T) {
	dir := testDir(t)
	for _, name := range []string{SocketName, WorkerName} {
		net := map[string]string{SocketName: "unixpacket", WorkerName: "unix"}[name]
		leaveSocket(t, net, filepath.Join(dir, name))
	}
	l, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	w, err := ListenWorker(dir)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
}

func TestFileInThePlaceOfASocketStays(t *testing.T) {
	dir := testDir(t)
	path := filepath.Join(dir, SocketName)
	write(t, path)
	if _, err := Listen(dir, nil); errs.KindOf(err) != errs.Denied {
		t.Errorf("Listen = %v, want denied", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
}

func mkdir(mode os.FileMode) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func leaveSocket(t *testing.T, network, path string) {
	t.Helper()
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}
