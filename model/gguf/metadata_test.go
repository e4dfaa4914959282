package gguf_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/model/gguf"
)

func parse(t *testing.T, data []byte) *gguf.File {
	t.Helper()
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// got puts an accessor's two results into one value that a table can hold.
type got struct {
	V  any
	OK bool
}

func pair[T any](v T, ok bool) got { return got{v, ok} }

func TestGetters(t *testing.T) {
	f := parse(t, build().
		Uint32("u32", 7).Uint32("big", math.MaxUint32).
		Key("u8", 0).Raw(200).Key("i8", 1).Raw(0xFF).Key("u16", 2).Raw(1, 2).Key("i16", 3).Raw(0xFE, 0xFF).
		Key("i32", 5).Raw(u32(9)...).Key("u64", 10).Raw(u64(1<<32)...).Key("i64", 11).Raw(u64(5)...).
		Float32("f32", 1.5).Key("f64", 12).Raw(u64(math.Float64bits(2.5))...).
		Bool("yes", true).Bool("no", false).
		String("text", "héllo").String("empty", "").
		Strings("list", "a", "", "c").Strings("none").
		Int32s("ids", -1, 0, 1).
		Array("bytes", 0, 3).Raw(1, 2, 255).
		Array("wide", 10, 1).Raw(u64(1<<40)...).
		Array("floats", 6, 1).Raw(u32(0)...).
		Bytes())
	for _, c := range []struct {
		name string
		got  got
		want got
	}{
		{"a 32-bit integer", pair(f.Uint32("u32")), pair(uint32(7), true)},
		{"the largest one", pair(f.Uint32("big")), pair(uint32(math.MaxUint32), true)},
		{"an 8-bit integer", pair(f.Uint32("u8")), pair(uint32(200), true)},
		{"a negative 8-bit one does not fit", pair(f.Uint32("i8")), pair(uint32(0), false)},
		{"a 16-bit integer", pair(f.Uint32("u16")), pair(uint32(0x0201), true)},
		{"a negative 16-bit one does not fit", pair(f.Uint32("i16")), pair(uint32(0), false)},
		{"a signed 32-bit integer", pair(f.Uint32("i32")), pair(uint32(9), true)},
		{"a 64-bit integer that does not fit", pair(f.Uint32("u64")), pair(uint32(0), false)},
		{"a 64-bit integer that fits", pair(f.Uint32("i64")), pair(uint32(5), true)},
		{"a float is no integer", pair(f.Uint32("f32")), pair(uint32(0), false)},
		{"an absent key is no integer", pair(f.Uint32("absent")), pair(uint32(0), false)},
		{"a float", pair(f.Float32("f32")), pair(float32(1.5), true)},
		{"a wide float", pair(f.Float32("f64")), pair(float32(2.5), true)},
		{"an integer is no float", pair(f.Float32("u32")), pair(float32(0), false)},
		{"an absent key is no float", pair(f.Float32("absent")), pair(float32(0), false)},
		{"true", pair(f.Bool("yes")), pair(true, true)},
		{"false", pair(f.Bool("no")), pair(false, true)},
		{"an integer is no boolean", pair(f.Bool("u32")), pair(false, false)},
		{"an absent key is no boolean", pair(f.Bool("absent")), pair(false, false)},
		{"text", pair(f.String("text")), pair("héllo", true)},
		{"empty text is there", pair(f.String("empty")), pair("", true)},
		{"a list is no text", pair(f.String("list")), pair("", false)},
		{"a list of texts", pair(f.Strings("list")), pair([]string{"a", "", "c"}, true)},
		{"an empty list is there", pair(f.Strings("none")), pair([]string{}, true)},
		{"integers are no texts", pair(f.Strings("ids")), pair([]string(nil), false)},
		{"a list of integers", pair(f.Int32s("ids")), pair([]int32{-1, 0, 1}, true)},
		{"a list of bytes", pair(f.Int32s("bytes")), pair([]int32{1, 2, 255}, true)},
		{"a list with one that does not fit", pair(f.Int32s("wide")), pair([]int32(nil), false)},
		{"floats are no integers", pair(f.Int32s("floats")), pair([]int32(nil), false)},
		{"texts are no integers", pair(f.Int32s("list")), pair([]int32(nil), false)},
		{"an absent key is no list", pair(f.Int32s("absent")), pair([]int32(nil), false)},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestKeysAreSortedAndRawIsExact(t *testing.T) {
	f := parse(t, build().String("b", "xy").Uint32("a", 258).Strings("c", "z").Bytes())
	if diff := cmp.Diff([]string{"a", "b", "c"}, f.Keys()); diff != "" {
		t.Errorf("Keys (-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		key  string
		kind uint32
		data []byte
	}{
		{"a", 4, u32(258)},
		{"b", 8, append(u64(2), "xy"...)},
		{"c", 9, append(append(append(u32(8), u64(1)...), u64(1)...), 'z')},
	} {
		kind, data, ok := f.Raw(c.key)
		if diff := cmp.Diff(c.data, data); !ok || kind != c.kind || diff != "" {
			t.Errorf("Raw(%s) = kind %d, %v, want %d (-want +got):\n%s", c.key, kind, ok, c.kind, diff)
		}
	}
	if _, _, ok := f.Raw("absent"); ok || f.Has("absent") {
		t.Error("an absent key is there")
	}
}
