package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// maxPEM bounds a file of certificates, in bytes.
const maxPEM = 1 << 20

// TLSConfig is what iwarp needs for TLS: our certificate and key, and the
// authorities to believe, which are the same CAs at both ends. It is nil if no
// tls.* key is set. The key file must belong to its owner alone. Its errors
// name the key of the configuration and never show what is in a file.
func (c *Config) TLSConfig() (*tls.Config, error) {
	if c.TLS == (TLS{}) {
		return nil, nil
	}
	fault := func(key, path string, err error) (*tls.Config, error) {
		return nil, Faults{{Source: path, Key: key, Reason: err.Error()}}
	}
	pair := &keyPair{cert: c.TLS.Cert, key: c.TLS.Key}
	if key, err := pair.load(); err != nil {
		path := c.TLS.Cert
		if key == "tls.key" {
			path = c.TLS.Key
		}
		return fault(key, path, err)
	}
	caPEM, err := readPEM(c.TLS.CA)
	if err != nil {
		return fault("tls.ca", c.TLS.CA, err)
	}
	pool, err := parseCAs(caPEM)
	if err != nil {
		return fault("tls.ca", c.TLS.CA, err)
	}
	return &tls.Config{
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.current(), nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.current(), nil },
		RootCAs:              pool, ClientCAs: pool, MinVersion: tls.VersionTLS13,
	}, nil
}

// A keyPair is our certificate and its key, read again when the files change,
// so that short-lived certificates need no restart. If new files are not usable
// the pair before them stays in use, because two files are always replaced one
// after the other.
type keyPair struct {
	cert, key string // paths

	mu     sync.Mutex
	now    *tls.Certificate
	looked time.Time // when the files were looked at last
	seen   [2]time.Time
}

// keyPairAge is how long a pair is believed without a look at its files.
const keyPairAge = 10 * time.Second

// current returns the pair in force.
func (p *keyPair) current() *tls.Certificate {
	p.mu.Lock()
	stale := time.Since(p.looked) > keyPairAge && p.changed() != p.seen
	p.mu.Unlock()
	if stale {
		_, _ = p.load()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// changed returns when the files were written.
func (p *keyPair) changed() (at [2]time.Time) {
	p.looked = time.Now()
	for i, path := range [...]string{p.cert, p.key} {
		if st, err := os.Stat(path); err == nil {
			at[i] = st.ModTime()
		}
	}
	return at
}

// load reads the pair. An error comes with the key of the configuration that
// it is about, and changes nothing.
func (p *keyPair) load() (key string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.changed()
	certPEM, err := readPEM(p.cert)
	if err != nil {
		return "tls.cert", err
	}
	keyPEM, err := readPrivate(p.key, maxPEM)
	if err != nil {
		return "tls.key", err
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return "tls.cert", fmt.Errorf("%w (with the key of %s)", err, p.key)
	}
	if cert.Leaf == nil {
		return "tls.cert", errors.New("has no certificate")
	}
	if now := time.Now(); now.After(cert.Leaf.NotAfter) || now.Before(cert.Leaf.NotBefore) {
		return "tls.cert", fmt.Errorf("is valid from %s to %s, and it is %s: nobody would take it",
			cert.Leaf.NotBefore.UTC().Format(time.RFC3339), cert.Leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	p.now, p.seen = &cert, at
	return "", nil
}

// parseCAs reads every certificate of a file. One that does not parse is an
// error: x509 would leave it out silently.
func parseCAs(data []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	count := 0
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("has a block of type %q: only certificates belong there", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", count+1, err)
		}
		pool.AddCert(cert)
		count++
	}
	if count == 0 {
		return nil, errors.New("has no certificate in PEM")
	}
	return pool, nil
}

// readPEM reads a file that every user may read.
func readPEM(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxPEM {
		return nil, fmt.Errorf("is larger than %d bytes", maxPEM)
	}
	return data, nil
}
