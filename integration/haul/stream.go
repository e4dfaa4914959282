package haul

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"time"

	"leasehold.dev/protos/errs"
)

// Stream reads the pages from so many bare connections straight into their places; place p comes over connection
// p % conns.
func Stream(o Options) Maker {
	name := "tcp"
	if o.TLS {
		name = "tls13"
	}
	return Maker{Name: fmt.Sprintf("%s_%d", name, o.Conns), Checked: "content", Open: func(ctx context.Context, l Load) (_ Way, err error) {
		s := &stream{}
		defer func() {
			if err != nil {
				_ = s.Close()
			}
		}()
		var a Address
		if s.source, a, err = startSending(ctx, sending{Kind: "stream", Load: l, Options: o}); err != nil {
			return nil, err
		}
		if s.Pages, err = newPages(l, atDestination); err != nil {
			return nil, err
		}
		for i := range o.Conns {
			c, err := dial(ctx, a)
			if err != nil {
				return nil, err
			}
			s.conns = append(s.conns, c)
			if _, err := c.Write([]byte{byte(i), byte(o.Conns)}); err != nil {
				return nil, err
			}
		}
		return s, nil
	}}
}

// dial connects, and checks the certificate when there is one.
func dial(ctx context.Context, a Address) (net.Conn, error) {
	if a.Cert == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", a.Net)
	}
	conf, err := clientTLS(a.Cert)
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", a.Net)
}

type stream struct {
	*Pages
	source *child
	conns  []net.Conn
}

func (s *stream) Clear(context.Context) error { s.clear(); return nil }
func (s *stream) Check(context.Context) error { return s.check() }

func (s *stream) Run(context.Context) (Timing, error) {
	start := time.Now()
	all := make([]error, len(s.conns))
	var wg sync.WaitGroup
	for lane := range s.conns {
		wg.Go(func() { all[lane] = s.read(lane) })
	}
	wg.Wait()
	return Timing{Moved: time.Since(start)}, errors.Join(all...)
}

func (s *stream) read(lane int) error {
	c := s.conns[lane]
	if _, err := c.Write([]byte{1}); err != nil {
		return err
	}
	for i := lane; i < len(s.At); i += len(s.conns) {
		if _, err := io.ReadFull(c, s.Place(i)); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) Close() error {
	for _, c := range s.conns {
		_ = c.Close()
	}
	var err error
	if s.source != nil {
		err = s.source.close()
	}
	if s.Pages != nil {
		_ = s.Pool.Close()
	}
	return err
}

// serveStream sends the pages on each connection whenever a byte asks for them.
func serveStream(o Options, p *Pages) (Address, func(), error) {
	var a Address
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return a, nil, err
	}
	a.Net = ln.Addr().String()
	if o.TLS {
		conf, err := serverTLS()
		if err != nil {
			return a, nil, err
		}
		a.Cert, ln = conf.Certificates[0].Certificate[0], tls.NewListener(ln, conf)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { sendStream(c, p) })
		}
	})
	return a, func() { _ = ln.Close(); wg.Wait() }, nil
}

// sendStream ends when the receiver does.
func sendStream(c net.Conn, p *Pages) {
	defer c.Close()
	var lane [2]byte
	if _, err := io.ReadFull(c, lane[:]); err != nil || lane[1] == 0 {
		return
	}
	for {
		var ask [1]byte
		if _, err := io.ReadFull(c, ask[:]); err != nil {
			return
		}
		for i := int(lane[0]); i < len(p.At); i += int(lane[1]) {
			if _, err := c.Write(p.Place(i)); err != nil {
				return
			}
		}
	}
}

// serverTLS is a certificate of its own making.
func serverTLS() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, nil
}

func clientTLS(der []byte) (*tls.Config, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errs.New(errs.Invalid, "the source's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: "127.0.0.1"}, nil
}
