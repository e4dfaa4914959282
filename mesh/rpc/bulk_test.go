package rpc

import "testing"

func TestFramesAreReusedAndOthersAreNot(t *testing.T) {
	var p frames
	for _, n := range []int{0, 1, frame / 4, frame/4 + 1, frame - 1, frame, frame + 1, 1 << 20} {
		b := p.Get(n)
		if len(*b) != n {
			t.Errorf("Get(%d) has %d bytes", n, len(*b))
		}
		if kept, want := cap(*b) == frame, n > frame/4 && n <= frame; kept != want {
			t.Errorf("Get(%d) has room for %d: kept = %v, want %v", n, cap(*b), kept, want)
		}
		p.Put(b)
	}
	if b := p.Get(frame); cap(*b) != frame {
		t.Errorf("a frame after others were put back has room for %d", cap(*b))
	}
}
