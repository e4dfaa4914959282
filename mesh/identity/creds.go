package identity

import (
	"crypto/tls"
	"crypto/x509"

	"google.golang.org/grpc/credentials"

	"leasehold.dev/protos/errs"
)

// ServerCreds requires a client certificate of our trust domain.
func (i *Identity) ServerCreds() credentials.TransportCredentials {
	if i.dir == "" {
		return newPlain()
	}
	return credentials.NewTLS(i.serverTLS())
}

func (i *Identity) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			m, err := i.current()
			if err != nil {
				return nil, err
			}
			return m.cert, nil
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, _, err := i.verify(cs, x509.ExtKeyUsageClientAuth)
			return err
		},
	}
}

// ClientCreds accepts a server only if it is an instance of service, and the one named id unless id is empty.
func (i *Identity) ClientCreds(service, id string) credentials.TransportCredentials {
	if i.dir == "" {
		return newPlain()
	}
	return credentials.NewTLS(i.clientTLS(service, id))
}

func (i *Identity) clientTLS(service, id string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // there is no host name to verify: VerifyConnection checks the chain and the SPIFFE id
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			m, err := i.current()
			if err != nil {
				return nil, err
			}
			return m.cert, nil
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			gotService, gotID, err := i.verify(cs, x509.ExtKeyUsageServerAuth)
			if err != nil {
				return err
			}
			if gotService != service || id != "" && gotID != id {
				return errs.New(errs.Denied, "server is %s/%s, want %s/%s", gotService, gotID, service, id)
			}
			return nil
		},
	}
}

func (i *Identity) verify(cs tls.ConnectionState, usage x509.ExtKeyUsage) (service, id string, err error) {
	if len(cs.PeerCertificates) == 0 {
		return "", "", errs.New(errs.Denied, "peer has no certificate")
	}
	m, err := i.current()
	if err != nil {
		return "", "", err
	}
	leaf, between := cs.PeerCertificates[0], x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: m.roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}})
	if err != nil {
		return "", "", errs.New(errs.Denied, "peer's certificate: %w", err)
	}
	return parse(leaf)
}
