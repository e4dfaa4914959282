package server

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// compare says in what two brokers differ that must agree before a page may move, with both values.
func compare(own, peer *brokerv1.BrokerIdentity) error {
	if len(peer.GetInstance()) == 0 || peer.GetName() == "" {
		return errs.New(errs.Invalid, "handshake: no name or no instance")
	}
	differ := func(what string, own, peer any) error {
		return errs.New(errs.Invalid, "handshake: %s differs: %v here, %v there", what, own, peer)
	}
	switch {
	case own.Protocol != peer.Protocol:
		return differ("protocol", own.Protocol, peer.Protocol)
	case !bytes.Equal(own.LayoutHash, peer.LayoutHash):
		return differ("layout hash", inHex(own.LayoutHash), inHex(peer.LayoutHash))
	case !bytes.Equal(own.ModelRevision, peer.ModelRevision):
		return differ("model revision", inHex(own.ModelRevision), inHex(peer.ModelRevision))
	case !bytes.Equal(own.TokenizerRevision, peer.TokenizerRevision):
		return differ("tokenizer revision", inHex(own.TokenizerRevision), inHex(peer.TokenizerRevision))
	case own.NumericsClass != peer.NumericsClass:
		return differ("numerics class", own.NumericsClass, peer.NumericsClass)
	}
	return nil
}

func inHex(b []byte) string { return fmt.Sprintf("%x", b) }

// handshakes keeps who the peers were when they were last asked.
type handshakes struct {
	own   *brokerv1.BrokerIdentity
	peers Peers

	mu    sync.Mutex
	known map[string]*brokerv1.BrokerIdentity
}

// call runs f with a connection to the broker named name and its identity, after a handshake with that instance. When f
// says that the identity is of an old instance, the peer is asked again, and f runs once more if it has a new one.
func (h *handshakes) call(ctx context.Context, name string, f func(grpc.ClientConnInterface, *brokerv1.BrokerIdentity) error) error {
	if h.peers == nil {
		return errs.New(errs.Unavailable, "this broker knows no other")
	}
	return h.peers.Call(name, func(conn grpc.ClientConnInterface) error {
		id, err := h.identify(ctx, conn, name)
		if err != nil {
			return err
		}
		if err = f(conn, id); errs.KindOf(err) != errs.Stale {
			return err
		}
		h.drop(name, id)
		again, herr := h.identify(ctx, conn, name)
		if herr != nil || bytes.Equal(again.Instance, id.Instance) {
			return err
		}
		return f(conn, again)
	})
}

func (h *handshakes) drop(name string, id *brokerv1.BrokerIdentity) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known[name] == id {
		delete(h.known, name)
	}
}

func (h *handshakes) identify(ctx context.Context, conn grpc.ClientConnInterface, name string) (*brokerv1.BrokerIdentity, error) {
	h.mu.Lock()
	id := h.known[name]
	h.mu.Unlock()
	if id != nil {
		return id, nil
	}
	resp, err := brokerv1.NewPeerServiceClient(conn).Handshake(ctx, &brokerv1.HandshakeRequest{From: h.own})
	if err != nil {
		return nil, errs.FromStatus(err)
	}
	if err := compare(h.own, resp.From); err != nil {
		return nil, err
	}
	if resp.From.Name != name {
		return nil, errs.New(errs.Invalid, "handshake: broker %q answers for %q", resp.From.Name, name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known[name] = resp.From
	return resp.From, nil
}
