package canary

import "testing"

func TestCodesAreFarApart(t *testing.T) {
	most := 0
	for a := range codes {
		if cross(codes[a], codes[a]) != codeDims {
			t.Fatalf("token %d does not match itself", a)
		}
		for b := range a {
			c := cross(codes[a], codes[b])
			sum := 0.0
			for d := range codeDims {
				sum += sign(a, d) * sign(b, d)
			}
			if float64(c) != sum {
				t.Fatalf("tokens %d and %d: product %d, by signs %g", a, b, c, sum)
			}
			most = max(most, c, -c)
		}
	}
	if most > maxCross {
		t.Errorf("two codes have a product of %d of %d, at most %d is wanted", most, codeDims, maxCross)
	}
}

func TestRanges(t *testing.T) {
	owners := map[int]int{}
	for id := range int32(Vocabulary) {
		owner, ok := Owner(id)
		if ok {
			owners[owner]++
		} else if filler(id) {
			t.Errorf("token %d is nobody's filler", id)
		}
	}
	for tenant := range Tenants {
		if owners[tenant] != PerTenant {
			t.Errorf("tenant %d has %d ids, want %d", tenant, owners[tenant], PerTenant)
		}
		for i := range PerTenant {
			if id := marker(tenant, i); filler(id) != (i >= Markers) {
				t.Errorf("token %d of tenant %d: filler is %v", i, tenant, filler(id))
			}
		}
	}
	if len(basePieces) != base {
		t.Errorf("%d tokens below the ranges, want %d", len(basePieces), base)
	}
	for _, id := range []int32{-1, A, End, Vocabulary} {
		if owner, ok := Owner(id); ok {
			t.Errorf("token %d is tenant %d's", id, owner)
		}
	}
}
