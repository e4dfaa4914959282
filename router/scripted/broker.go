package scripted

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/proof"
)

// Broker is the part of a KV broker that a router meets: its records of what the workers did.
type Broker struct {
	brokerv1.UnimplementedRecordServiceServer
	Stop  func()
	Twist func(*brokerv1.LeaseRecord) *brokerv1.LeaseRecord // changes a record before it is kept; nil: it is lost. Set before the first request

	mu       sync.Mutex
	instance []byte
	kept     []*brokerv1.LeaseRecord
	news     chan struct{}
}

// NewBroker starts one. The workers that name it record there.
func (m *Mesh) NewBroker(name string) *Broker {
	b := &Broker{instance: Hash(name)[:16], news: make(chan struct{})}
	m.mu.Lock()
	if m.brokers[name] != nil { // it starts again
		b.instance = proof.NewID()
	}
	m.brokers[name] = b
	m.mu.Unlock()
	_, b.Stop = m.server("kvbroker", name, func(g *grpc.Server) { brokerv1.RegisterRecordServiceServer(g, b) })
	return b
}

// record keeps r at the broker of that name, if there is one.
func (m *Mesh) record(broker string, r *brokerv1.LeaseRecord) {
	m.mu.Lock()
	b := m.brokers[broker]
	m.mu.Unlock()
	if b == nil {
		return
	}
	if r = proto.Clone(r).(*brokerv1.LeaseRecord); b.Twist != nil {
		if r = b.Twist(r); r == nil {
			return
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r.Seq = uint64(len(b.kept) + 1)
	b.kept = append(b.kept, r)
	close(b.news)
	b.news = make(chan struct{})
}

// Follow sends what is kept, then what comes.
func (b *Broker) Follow(r *brokerv1.FollowRequest, s grpc.ServerStreamingServer[brokerv1.FollowResponse]) error {
	at := int(r.After)
	if string(r.Instance) != string(b.instance) {
		at = 0
	}
	for {
		b.mu.Lock()
		some, news, head := b.kept[at:], b.news, uint64(len(b.kept))
		b.mu.Unlock()
		if err := s.Send(&brokerv1.FollowResponse{Instance: b.instance, Head: head, Records: some}); err != nil {
			return err
		}
		at += len(some)
		select {
		case <-news:
		case <-time.After(time.Second):
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}
