package gguf_test

import (
	"errors"
	"testing"
	"unsafe"

	"leasehold.dev/model/gguf"
	"leasehold.dev/model/gguf/gguftest"
)

// FuzzParse: whatever the bytes, Parse gives a file whose every part lies in them, or one of its two errors.
func FuzzParse(f *testing.F) {
	f.Add(build().Bytes())
	f.Add((&gguftest.Builder{Version: 2}).String("general.architecture", "llama").Bytes())
	f.Add(allTypes().Strings("l", "a", "b").Int32s("i", 1).Bool("b", true).Float32("f", 1).Bytes())
	f.Add(nested(2))
	f.Add(build().Zeros("x", gguf.F32, 64).TensorAt("y", gguf.F32, 32, 1).Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse(data)
		if err != nil {
			if !errors.Is(err, gguf.ErrFormat) && !errors.Is(err, gguf.ErrUnsupported) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		readAll(file)
		checkTensors(t, data, file)
	})
}

func readAll(f *gguf.File) {
	for _, key := range f.Keys() {
		f.Uint32(key)
		f.Float32(key)
		f.Bool(key)
		f.String(key)
		f.Strings(key)
		f.Int32s(key)
		f.Raw(key)
	}
}

func checkTensors(t *testing.T, data []byte, f *gguf.File) {
	owner := make(map[int]string)
	for _, x := range f.Tensors() {
		if !x.Type.Known() {
			if x.Data != nil {
				t.Fatalf("tensor %q of unknown type has data", x.Name)
			}
			continue
		}
		size, err := x.Type.Size(x.Dims)
		if err != nil || size != uint64(len(x.Data)) || size == 0 {
			t.Fatalf("tensor %q: %d bytes, Size = %d, %v", x.Name, len(x.Data), size, err)
		}
		at := int(uintptr(unsafe.Pointer(&x.Data[0])) - uintptr(unsafe.Pointer(&data[0])))
		if at < 0 || at+len(x.Data) > len(data) {
			t.Fatalf("tensor %q lies at %d of %d", x.Name, at, len(data))
		}
		for i := range x.Data {
			if other, taken := owner[at+i]; taken {
				t.Fatalf("tensors %q and %q share byte %d", x.Name, other, at+i)
			}
			owner[at+i] = x.Name
		}
	}
}
