package identity

import (
	"context"
	"crypto/x509"
	"net/url"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"leasehold.dev/mesh/name"
	"leasehold.dev/protos/errs"
)

// TrustDomain is the host part of every SPIFFE id of a mesh.
const TrustDomain = "leasehold"

func spiffe(service, id string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: TrustDomain, Path: "/" + service + "/" + id}
}

// parse returns the service and id that c proves. Whoever holds two names could be taken for either, so c must have one.
func parse(c *x509.Certificate) (service, id string, err error) {
	if len(c.URIs) != 1 {
		return "", "", errs.New(errs.Denied, "certificate has %d URI names, want 1", len(c.URIs))
	}
	u := c.URIs[0]
	service, id, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if name.Check("service", service) != nil || name.Check("id", id) != nil || u.String() != spiffe(service, id).String() {
		return "", "", errs.New(errs.Denied, "certificate names %.200q, want spiffe://%s/SERVICE/ID", u.String(), TrustDomain)
	}
	return service, id, nil
}

// Peer is the verified caller of the rpc that ctx belongs to; not ok for plain text.
func Peer(ctx context.Context) (service, id string, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", "", false
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return "", "", false
	}
	service, id, err := parse(info.State.PeerCertificates[0])
	return service, id, err == nil
}

// IsPlain reports whether the rpc that ctx belongs to came over [Plain]'s loopback connection.
func IsPlain(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	_, ok = p.AuthInfo.(plainInfo)
	return ok
}
