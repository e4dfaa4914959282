package transfer

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// FuzzCompletion: of all bytes that decode, only the genuine Completion passes, and everything else is Corrupt.
func FuzzCompletion(f *testing.F) {
	p := newPair(f, 150, 0)
	if err := p.run(harm{}); err != nil {
		f.Fatal(err)
	}
	genuine := p.receiver.Completion()
	var found []Found
	for i := range p.e.Pages {
		found = append(found, p.found(i))
	}
	b, err := proto.Marshal(genuine)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add(append(bytes.Clone(b), 0xf8, 0x06, 1)) // a field that nobody knows
	f.Add(append(bytes.Clone(b), b...))          // digests twice
	f.Add([]byte{})
	for _, change := range []func(*brokerv1.Completion){func(c *brokerv1.Completion) { c.Mac = nil },
		func(c *brokerv1.Completion) { c.Digests[0], c.Digests[1] = c.Digests[1], c.Digests[0] }, func(c *brokerv1.Completion) { c.Rows++ }} {
		c := cloned(genuine)
		change(c)
		b, err := proto.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &brokerv1.Completion{}
		if proto.Unmarshal(b, c) != nil {
			return
		}
		err := Verify(p.e, p.p, p.secret, c, found)
		if same := proto.Equal(c, genuine); same != (err == nil) || err != nil && errs.KindOf(err) != errs.Corrupt {
			t.Errorf("Verify of %v = %v; genuine: %v", c, err, same)
		}
	})
}
