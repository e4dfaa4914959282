package gguf

import (
	"fmt"
	"os"
	"syscall"
)

// File is an open model file. It is read-only and may be used by many goroutines; Close must come after all of them.
type File struct {
	Version   uint32
	Alignment uint64

	data    []byte
	mapped  bool
	meta    map[string]value
	tensors []Tensor
	byName  map[string]int
}

// Open maps the file at path and checks it as Parse does.
func Open(path string) (*File, error) {
	data, err := mapFile(path)
	if err != nil {
		return nil, fmt.Errorf("open model file: %w", err)
	}
	f, err := Parse(data)
	if err != nil {
		_ = syscall.Munmap(data)
		return nil, err
	}
	f.mapped = true
	return f, nil
}

func mapFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not block
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, malformed("not a regular file")
	case info.Size() < headerSize || int64(int(info.Size())) != info.Size():
		return nil, malformed("a file of %d bytes", info.Size())
	}
	return syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
}

// Close unmaps the file. All tensor data is gone afterwards. It may be called twice.
func (f *File) Close() error {
	data := f.data
	f.data, f.tensors, f.byName, f.meta = nil, nil, nil, nil
	if !f.mapped || data == nil {
		return nil
	}
	return syscall.Munmap(data)
}

// Bytes is the whole file, in the mapping.
func (f *File) Bytes() []byte { return f.data }

// Tensor finds a tensor by name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}

// Tensors are all tensors in the file's order. The slice is the file's own: do not change it.
func (f *File) Tensors() []Tensor { return f.tensors }
