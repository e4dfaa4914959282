package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"testing"

	"leasehold.dev/model/gguf"
	"leasehold.dev/model/gguf/gguftest"
)

func build() *gguftest.Builder { return &gguftest.Builder{} }

func TestParse(t *testing.T) {
	four := make([]byte, 16)
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"an empty version 3 file is right", build().Bytes(), nil},
		{"an empty version 2 file is right", (&gguftest.Builder{Version: 2}).Bytes(), nil},
		{"version 1 has other lengths", (&gguftest.Builder{Version: 1}).Bytes(), gguf.ErrUnsupported},
		{"version 4 does not exist yet", (&gguftest.Builder{Version: 4}).Bytes(), gguf.ErrUnsupported},
		{"big endian is refused", (&gguftest.Builder{Version: 3 << 24}).Bytes(), gguf.ErrUnsupported},
		{"no bytes at all", nil, gguf.ErrFormat},
		{"another magic", append([]byte("GGML"), build().Bytes()[4:]...), gguf.ErrFormat},
		{"a header cut short", build().Bytes()[:23], gguf.ErrFormat},
		{"a tensor count beyond the file", patch(build().Bytes(), 8, math.MaxUint64), gguf.ErrFormat},
		{"a key count beyond the file", patch(build().Bytes(), 16, 1<<40), gguf.ErrFormat},
		{"one key twice", build().Uint32("a", 1).Uint32("a", 1).Bytes(), gguf.ErrFormat},
		{"an unknown metadata kind", build().Key("a", 13).Raw(0, 0, 0, 0).Bytes(), gguf.ErrUnsupported},
		{"a string longer than the file", build().Key("a", 8).Raw(255, 255, 255, 255, 255, 255, 255, 255).Bytes(), gguf.ErrFormat},
		{"an array longer than the file", build().Array("a", 4, 1<<62).Bytes(), gguf.ErrFormat},
		{"an array whose size overflows 64 bits", build().Array("a", 12, 1<<61).Bytes(), gguf.ErrFormat},
		{"an array of an unknown kind", build().Array("a", 99, 0).Raw(0).Bytes(), gguf.ErrUnsupported},
		{"an array of arrays", build().Array("a", 9, 1).Raw(u32(4)...).Raw(u64(1)...).Raw(u32(7)...).Bytes(), nil},
		{"arrays nested without end", nested(1000), gguf.ErrUnsupported},
		{"an alignment of 0", build().Uint32("general.alignment", 0).Bytes(), gguf.ErrFormat},
		{"an alignment of 24", build().Uint32("general.alignment", 24).Bytes(), gguf.ErrFormat},
		{"an alignment that is text", build().String("general.alignment", "32").Bytes(), gguf.ErrFormat},
		{"an alignment of 64", (&gguftest.Builder{Align: 64}).Uint32("general.alignment", 64).Zeros("x", gguf.F32, 4).Bytes(), nil},

		{"one tensor of each known type", allTypes().Bytes(), nil},
		{"a tensor of an unknown type is only refused when it is needed", build().Tensor("x", 12, four, 256).Bytes(), nil},
		{"a tensor without a name", build().Zeros("", gguf.F32, 4).Bytes(), gguf.ErrFormat},
		{"a name of 65 bytes", build().Zeros(string(make([]byte, 65)), gguf.F32, 4).Bytes(), gguf.ErrFormat},
		{"one name twice", build().Zeros("x", gguf.F32, 4).Zeros("x", gguf.F32, 4).Bytes(), gguf.ErrFormat},
		{"no dimensions", build().Tensor("x", gguf.F32, four).Bytes(), gguf.ErrFormat},
		{"five dimensions", build().Tensor("x", gguf.F32, four, 4, 1, 1, 1, 1).Bytes(), gguf.ErrFormat},
		{"a dimension of 0", build().Tensor("x", gguf.F32, four, 4, 0).Bytes(), gguf.ErrFormat},
		{"a row of half a block", build().Tensor("x", gguf.Q8_0, make([]byte, 34), 16).Bytes(), gguf.ErrFormat},
		{"a size that overflows 64 bits", build().Tensor("x", gguf.F32, four, 1<<32, 1<<32).Bytes(), gguf.ErrFormat},
		{"a size that overflows to a small one", build().Tensor("x", gguf.F32, four, 1<<31+4, 1<<31).Bytes(), gguf.ErrFormat},
		{"data cut short by one byte", short(allTypes().Bytes()), gguf.ErrFormat},
		{"an offset beyond the file", build().Zeros("x", gguf.F32, 4).TensorAt("y", gguf.F32, 1<<40, 1).Bytes(), gguf.ErrFormat},
		{"an offset near 2^64", build().Zeros("x", gguf.F32, 4).TensorAt("y", gguf.F32, math.MaxUint64-31, 8).Bytes(), gguf.ErrFormat},
		{"an offset that is not aligned", build().Zeros("x", gguf.F32, 64).TensorAt("y", gguf.F32, 8, 1).Bytes(), gguf.ErrFormat},
		{"two tensors at one place", build().Zeros("x", gguf.F32, 64).TensorAt("y", gguf.F32, 0, 1).Bytes(), gguf.ErrFormat},
		{"one tensor inside another", build().Zeros("x", gguf.F32, 64).TensorAt("y", gguf.F32, 32, 1).Bytes(), gguf.ErrFormat},
		{"an unknown type inside another tensor", build().Zeros("x", gguf.F32, 64).TensorAt("y", 12, 32, 256).Bytes(), gguf.ErrFormat},
	} {
		_, err := gguf.Parse(c.data)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: Parse error = %v, want %v", c.name, err, c.want)
		}
	}
}

func u32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func u64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func patch(file []byte, at int, v uint64) []byte {
	binary.LittleEndian.PutUint64(file[at:], v)
	return file
}

func short(file []byte) []byte { return file[:len(file)-1] }

func nested(depth int) []byte {
	b := build().Array("a", 9, 1)
	for range depth {
		b.Raw(u32(9)...).Raw(u64(1)...)
	}
	return b.Raw(u32(4)...).Raw(u64(0)...).Bytes()
}

var knownTypes = []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q4_0, gguf.Q4_1, gguf.Q8_0}

func allTypes() *gguftest.Builder {
	b := build()
	for _, typ := range knownTypes {
		b.Zeros(typ.String(), typ, 64, 3)
	}
	return b
}

func TestTensorSizesAreGGMLs(t *testing.T) {
	f, err := gguf.Parse(allTypes().Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for typ, want := range map[gguf.Type]int{
		gguf.F32: 64 * 3 * 4, gguf.F16: 64 * 3 * 2, gguf.BF16: 64 * 3 * 2,
		gguf.Q4_0: 6 * 18, gguf.Q4_1: 6 * 20, gguf.Q8_0: 6 * 34,
	} {
		x, ok := f.Tensor(typ.String())
		if !ok || len(x.Data) != want || x.Type != typ || x.Rows() != 3 {
			t.Errorf("Tensor(%v) = %d bytes, %d rows, %v; want %d bytes", typ, len(x.Data), x.Rows(), ok, want)
		}
	}
	if _, err := gguf.Type(12).Size([]uint64{256}); !errors.Is(err, gguf.ErrUnsupported) {
		t.Errorf("Size of type 12: %v, want %v", err, gguf.ErrUnsupported)
	}
	if got := gguf.Type(12).String(); got != "type(12)" {
		t.Errorf("String = %q", got)
	}
}

func TestTensorDataIsTheFiles(t *testing.T) {
	x, y := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 36)
	f, err := gguf.Parse(build().Tensor("x", gguf.F32, x, 4).Tensor("y", gguf.F32, y, 3, 3).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"x": x, "y": y} {
		got, _ := f.Tensor(name)
		if !bytes.Equal(got.Data, want) {
			t.Errorf("Tensor(%s).Data = %v, want %v", name, got.Data, want)
		}
		if cap(got.Data) != len(want) {
			t.Errorf("Tensor(%s).Data can be grown into its neighbour: capacity %d of %d", name, cap(got.Data), len(want))
		}
	}
	if _, ok := f.Tensor("z"); ok {
		t.Error("Tensor(z) found something")
	}
}

func TestAHostileCountAllocatesNothing(t *testing.T) {
	files := [][]byte{
		build().Array("a", 8, 1<<50).Bytes(),
		build().Array("a", 8, 1<<20).Raw(make([]byte, 1<<10)...).Bytes(),
		patch(build().Uint32("a", 1).Bytes(), 16, 1<<60),
		patch(build().Zeros("x", gguf.F32, 4).Bytes(), 8, 1<<60),
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i, data := range files {
		if _, err := gguf.Parse(data); !errors.Is(err, gguf.ErrFormat) {
			t.Errorf("file %d: %v, want %v", i, err, gguf.ErrFormat)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("four hostile files of %d bytes allocated %d bytes", len(files[1]), got)
	}
}

func TestEveryTruncationIsRefused(t *testing.T) {
	whole := allTypes().String("s", "text").Strings("l", "a", "b").Int32s("i", 1, 2).Bytes()
	if _, err := gguf.Parse(whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, err := gguf.Parse(whole[:n:n]); !errors.Is(err, gguf.ErrFormat) {
			t.Fatalf("the first %d of %d bytes: %v, want %v", n, len(whole), err, gguf.ErrFormat)
		}
	}
}
