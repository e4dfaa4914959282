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

// FuzzPullOpen: of all bytes that decode, only an open that fits this broker and the admission makes a source, and none makes
// it crash. What it then promises is what the admission says, whatever else the message had.
func FuzzPullOpen(f *testing.F) {
	p := newPair(f, 150, 0)
	for _, change := range []func(*brokerv1.PullOpen){func(*brokerv1.PullOpen) {}, func(o *brokerv1.PullOpen) { o.Secret = nil },
		func(o *brokerv1.PullOpen) { o.FromToken = 64 }, func(o *brokerv1.PullOpen) { o.Rows, o.Pages = 1<<31, 1<<31 },
		func(o *brokerv1.PullOpen) { o.ToInstance = p.d.Instance }} {
		o := p.open()
		change(o)
		b, err := proto.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		o := &brokerv1.PullOpen{}
		if proto.Unmarshal(b, o) != nil {
			return
		}
		s, err := NewSource(p.p, p.admission, o)
		if err != nil {
			if k := errs.KindOf(err); k != errs.Stale && k != errs.Invalid && k != errs.Corrupt || s != nil {
				t.Errorf("NewSource of %v = %v, %v", o, s, err)
			}
			return
		}
		from, rows, pages := s.Want()
		if !bytes.Equal(o.ToInstance, p.p.Instance) || len(o.Secret) != 32 || from%64 != 0 || from+rows != 149 || pages != (rows+63)/64 {
			t.Errorf("NewSource of %v wants %d rows from %d in %d pages", o, rows, from, pages)
		}
	})
}
