package explore

import meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"

const (
	none  = meshv1.Mover_MOVER_NONE
	local = meshv1.Mover_MOVER_LOCAL
	grpc  = meshv1.Mover_MOVER_GRPC
)

// The asks that plans are made of. A prompt of 66 tokens moves a full page and one row of a second, one of 34 half a page.
var (
	longSplit  = Ask{"acme", 66, 2, grpc}
	shortSplit = Ask{"acme", 34, 2, grpc}
	otherSplit = Ask{"globex", 34, 2, grpc}
	handedOver = Ask{"acme", 66, 2, local}
	longSolo   = Ask{"acme", 66, 2, none}
	otherSolo  = Ask{"globex", 2, 2, none}
)

// Plans are the meshes that are searched: to the end with one upset (two where there is no transfer), to a depth with two.
func Plans() []Plan {
	return []Plan{
		{Name: "two solo requests", Pages: [2]uint32{1, 2}, Upsets: 2, Asks: []Ask{longSolo, otherSolo}},
		{Name: "split beside solo", Pages: [2]uint32{2, 2}, Upsets: 1, Asks: []Ask{longSplit, otherSolo}},
		{Name: "handover beside solo", Pages: [2]uint32{2, 1}, Upsets: 1, Asks: []Ask{handedOver, otherSolo}},
		{Name: "two splits on one page", Pages: [2]uint32{1, 1}, Upsets: 1, Asks: []Ask{shortSplit, otherSplit}},
		{Name: "split", Pages: [2]uint32{1, 1}, Upsets: 2, Asks: []Ask{shortSplit}},
		{Name: "split of two pages", Pages: [2]uint32{2, 2}, Upsets: 2, Depth: 12, Asks: []Ask{longSplit}},
		{Name: "split beside solo, roomy", Pages: [2]uint32{2, 3}, Upsets: 2, Depth: 9, Asks: []Ask{longSplit, otherSolo}},
		{Name: "handover beside solo, roomy", Pages: [2]uint32{4, 1}, Upsets: 2, Depth: 9, Asks: []Ask{handedOver, otherSolo}},
	}
}

// Small are meshes that are searched to the end within seconds.
func Small() []Plan {
	return []Plan{
		{Name: "solo", Pages: [2]uint32{1, 2}, Upsets: 2, Asks: []Ask{longSolo}},
		{Name: "split", Pages: [2]uint32{1, 1}, Upsets: 1, Asks: []Ask{shortSplit}},
		{Name: "handover", Pages: [2]uint32{2, 1}, Upsets: 1, Asks: []Ask{handedOver}},
		{Name: "split of two pages", Pages: [2]uint32{2, 2}, Upsets: 1, Depth: 19, Asks: []Ask{longSplit}},
		{Name: "two solo requests", Pages: [2]uint32{1, 2}, Upsets: 1, Quota: 1, Asks: []Ask{{"acme", 2, 2, none}, {"acme", 3, 2, none}}},
		{Name: "three solo requests", Pages: [2]uint32{1, 3}, Share: 1, Asks: []Ask{{"acme", 2, 2, none}, {"acme", 3, 2, none}, otherSolo}},
	}
}

// Seeds are the meshes on which the seeded bugs are looked for, each until it is found.
func Seeds() []Plan {
	solo := func(g Bug) Plan {
		return Plan{Name: "two solo requests", Pages: [2]uint32{1, 2}, Upsets: 2, Bug: g, Asks: []Ask{{"acme", 2, 2, none}, otherSolo}}
	}
	return []Plan{solo(TimerFrees), solo(LateTag), {Name: "split", Pages: [2]uint32{1, 1}, Upsets: 1, Bug: CopiedCount, Asks: []Ask{shortSplit}},
		solo(ReusedID), solo(EpochProof)}
}
