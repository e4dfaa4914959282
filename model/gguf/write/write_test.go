package write_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/model/gguf"
	"leasehold.dev/model/gguf/write"
)

func TestWhatIsWrittenReadsBack(t *testing.T) {
	b := &write.Builder{}
	b.String("s", "text").Uint32("n", 7).Float32("x", 1e20).Bool("yes", true).Strings("list", "a", "", "c").Int32s("ints", -1, 2)
	b.Tensor("w", gguf.Q8_0, write.Q8(make(write.Row, 64)), 64, 1).Tensor("v", gguf.F32, write.Float32s(write.Row{1, -2, 0.5}), 3)
	data, err := b.Checked()
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := f.String("s")
	n, _ := f.Uint32("n")
	x, _ := f.Float32("x")
	yes, _ := f.Bool("yes")
	list, _ := f.Strings("list")
	ints, _ := f.Int32s("ints")
	if s != "text" || n != 7 || x != 1e20 || !yes || cmp.Diff([]string{"a", "", "c"}, list) != "" || cmp.Diff([]int32{-1, 2}, ints) != "" {
		t.Errorf("read %q, %d, %g, %v, %q, %v", s, n, x, yes, list, ints)
	}
	v, ok := f.Tensor("v")
	if want := write.Float32s(write.Row{1, -2, 0.5}); !ok || cmp.Diff(want, v.Data) != "" {
		t.Errorf("tensor v holds % x, want % x", v.Data, want)
	}
	if w, ok := f.Tensor("w"); !ok || w.Type != gguf.Q8_0 || len(w.Data) != 2*34 {
		t.Errorf("tensor w is %+v", w)
	}
}

func TestCheckedRefusesWhatNobodyCouldLoad(t *testing.T) {
	short := (&write.Builder{}).Tensor("w", gguf.F32, make([]byte, 8), 64)
	if _, err := short.Checked(); !errors.Is(err, gguf.ErrFormat) {
		t.Errorf("a tensor of 64 floats in 8 bytes: %v, want %v", err, gguf.ErrFormat)
	}
	if len(short.Bytes()) == 0 {
		t.Error("Bytes does not write what it was told")
	}
}

func TestHalf(t *testing.T) {
	for _, c := range []struct {
		x    float64
		want uint16
	}{
		{0, 0}, {1, 0x3c00}, {-2, 0xc000}, {65504, 0x7bff}, {65519, 0x7bff}, {65520, 0x7c00}, {math.Inf(-1), 0xfc00},
		{0x1p-14, 0x0400}, {0x1p-24, 1}, {0x1p-25, 0}, {0x1.8p-24, 2}, {0x1.ff8p-15, 0x03ff}, {0x1.ffcp-15, 0x0400},
		{1 + 0x1p-11, 0x3c00}, {1 + 0x3p-11, 0x3c02}, {0x1.fffp0, 0x4000},
	} {
		if got := write.Half(c.x); got != c.want {
			t.Errorf("Half(%g) = %#04x, want %#04x", c.x, got, c.want)
		}
	}
	if got := write.Half(math.NaN()); got&0x7c00 != 0x7c00 || got&0x3ff == 0 {
		t.Errorf("Half(NaN) = %#04x", got)
	}
	for h := range 1 << 16 {
		x := write.FromHalf(uint16(h))
		if back := write.Half(x); !math.IsNaN(x) && back != uint16(h) {
			t.Fatalf("Half(FromHalf(%#04x)) = %#04x", h, back)
		}
	}
}

func TestQ8KeepsSignsOfOneMagnitudeExactly(t *testing.T) {
	row := make(write.Row, 64)
	for i := range row {
		row[i] = [3]float64{-6, 0, 6}[i%3]
	}
	row[63] = 0
	data := write.Q8(row)
	for block := range 2 {
		d := write.FromHalf(uint16(data[34*block]) | uint16(data[34*block+1])<<8)
		for i := range 32 {
			want := int8(127 * row[32*block+i] / 6)
			if got := int8(data[34*block+2+i]); got != want {
				t.Errorf("element %d is %d, want %d", 32*block+i, got, want)
			}
		}
		if math.Abs(127*d-6) > 6*0x1p-11 {
			t.Errorf("block %d has scale %g, want about %g", block, d, 6.0/127)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a row of 33 elements was written")
		}
	}()
	write.Q8(make(write.Row, 33))
}
