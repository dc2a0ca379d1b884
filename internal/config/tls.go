package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// maxPEM bounds a file of certificates, in bytes.
const maxPEM = 1 << 20

// TLSConfig is what iwarp needs for TLS: our certificate and key, and whom to
// believe, at both ends the same CAs. nil if no tls.* key is set. The key file
// must belong to its owner alone. Its errors name the key of the configuration
// and never show what is in a file.
func (c *Config) TLSConfig() (*tls.Config, error) {
	if c.TLS == (TLS{}) {
		return nil, nil
	}
	fault := func(key, path string, err error) (*tls.Config, error) {
		return nil, Faults{{Source: path, Key: key, Reason: err.Error()}}
	}
	certPEM, err := readPEM(c.TLS.Cert)
	if err != nil {
		return fault("tls.cert", c.TLS.Cert, err)
	}
	keyPEM, err := readPrivate(c.TLS.Key, maxPEM)
	if err != nil {
		return fault("tls.key", c.TLS.Key, err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fault("tls.cert", c.TLS.Cert, fmt.Errorf("%w (with the key of %s)", err, c.TLS.Key))
	}
	if cert.Leaf == nil {
		return fault("tls.cert", c.TLS.Cert, errors.New("has no certificate"))
	}
	if now := time.Now(); now.After(cert.Leaf.NotAfter) || now.Before(cert.Leaf.NotBefore) {
		return fault("tls.cert", c.TLS.Cert, fmt.Errorf("is valid from %s to %s, and it is %s: nobody would take it",
			cert.Leaf.NotBefore.UTC().Format(time.RFC3339), cert.Leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)))
	}
	caPEM, err := readPEM(c.TLS.CA)
	if err != nil {
		return fault("tls.ca", c.TLS.CA, err)
	}
	pool, err := parseCAs(caPEM)
	if err != nil {
		return fault("tls.ca", c.TLS.CA, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool, MinVersion: tls.VersionTLS13}, nil
}

// parseCAs reads every certificate of a file. One that does not parse is an
// error: x509 would leave it out without a word.
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

// readPEM reads a file that everybody may read.
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
