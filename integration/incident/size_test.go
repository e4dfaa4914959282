package incident

import (
	"testing"

	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
)

func TestScaleOneIsTheIncident(t *testing.T) {
	s, err := sizeOf(1)
	if err != nil {
		t.Fatal(err)
	}
	if s.limit != 681_280 || s.promise != 1_048_576 || s.decodePages*pageTokens != 1_048_576 || s.served[0] != 662_162 || s.served[1] != 681_280 {
		t.Errorf("%+v", s)
	}
	if s.refused[0] != 681_281 || s.refused[1] != 700_168 || s.refused[2] != 1_048_576 {
		t.Errorf("refused %v", s.refused)
	}
}

// At every scale the story is the same: the pool is too small for the promise, and the wrong prompt is between the two.
func TestEveryScaleTellsTheStory(t *testing.T) {
	for scale := 1; scale <= 64; scale++ {
		s, err := sizeOf(scale)
		if err != nil {
			t.Fatal(err)
		}
		if s.served[0] > s.limit || s.wrong <= s.limit || s.wrong+canary.Answer > s.promise || s.limit >= s.promise {
			t.Errorf("scale 1/%d: %+v", scale, s)
		}
		if used := fills * ((s.fill + canary.Answer + pageTokens - 1) / pageTokens); s.fill < canary.MinPrompt || used > s.decodePages || 10*used < 9*s.decodePages {
			t.Errorf("scale 1/%d: %d prompts of %d tokens take %d of %d pages", scale, fills, s.fill, used, s.decodePages)
		}
	}
	for _, scale := range []int{0, -1, 65} {
		if _, err := sizeOf(scale); errs.KindOf(err) != errs.Invalid {
			t.Errorf("scale %d: %v, want invalid", scale, err)
		}
	}
}
