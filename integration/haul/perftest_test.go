package haul

import (
	"testing"
	"time"
)

func TestPerfTestsLastLineIsItsRate(t *testing.T) {
	p := &perfTest{load: Load{PageBytes: 1 << 20, Bytes: 512 << 20}}
	const out = "| Test |\n+---+\n      256    103.427   110.551   110.551     9045.62    1024.00        9046        9046\n"
	got, err := p.timing(out)
	if err != nil || got.Moved.Round(time.Millisecond) != 500*time.Millisecond {
		t.Errorf("timing = %v, %v; want 512 MiB at 1024 MiB/s", got, err)
	}
	for _, bad := range []string{"", "no numbers here", "1 2 3 4 5 x 7 8", "1 2 3 4 5 0 7 8"} {
		if _, err := p.timing(bad); err == nil {
			t.Errorf("timing(%q) gives no error", bad)
		}
	}
}
