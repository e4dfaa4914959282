package gguf_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"leasehold.dev/model/gguf"
	"leasehold.dev/model/modelfile"
)

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenMapsTheFile(t *testing.T) {
	data := allTypes().String("s", "text").Bytes()
	f, err := gguf.Open(write(t, data))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(f.Bytes(), data) {
		t.Error("Bytes differ from the file's")
	}
	text, _ := f.String("s")
	for range 2 {
		if err := f.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if text != "text" {
		t.Errorf("text after Close = %q", text)
	}
	if _, ok := f.Tensor("F32"); ok || f.Has("s") || len(f.Tensors()) != 0 {
		t.Error("a closed file still has something")
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		want       error
	}{
		{"a file that is not there", filepath.Join(dir, "absent"), fs.ErrNotExist},
		{"a directory", dir, gguf.ErrFormat},
		{"an empty file", write(t, nil), gguf.ErrFormat},
		{"a file that is cut short", write(t, short(allTypes().Bytes())), gguf.ErrFormat},
		{"a pipe that nobody writes", pipe, gguf.ErrFormat},
		{"a device", os.DevNull, gguf.ErrFormat},
	} {
		if _, err := gguf.Open(c.path); !errors.Is(err, c.want) {
			t.Errorf("%s: Open error = %v, want %v", c.name, err, c.want)
		}
	}
}

func TestTheModelFile(t *testing.T) {
	f, err := gguf.Open(modelfile.Path(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Version != 3 || f.Alignment != 32 || len(f.Tensors()) != 272 || len(f.Keys()) != 33 {
		t.Errorf("version %d, alignment %d, %d tensors, %d keys", f.Version, f.Alignment, len(f.Tensors()), len(f.Keys()))
	}
	bytesOf := map[gguf.Type]int{}
	for _, x := range f.Tensors() {
		bytesOf[x.Type] += len(x.Data)
	}
	for typ, want := range map[gguf.Type]int{gguf.Q8_0: 30081024, gguf.F32: 140544, gguf.Q4_1: 66355200} {
		if bytesOf[typ] != want {
			t.Errorf("%d bytes of %v, want %d", bytesOf[typ], typ, want)
		}
	}
}
