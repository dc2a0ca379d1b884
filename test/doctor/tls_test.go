package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An authority signs certificates of both ends, for 127.0.0.1.
type authority struct {
	t    *testing.T
	dir  string
	now  time.Time
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, now time.Time) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), now: now}
	a.cert, a.key = a.make("ca")
	return a
}

// flags makes a certificate and returns the flags by which a program uses it.
func (a *authority) flags(name string) []string {
	a.t.Helper()
	a.make(name)
	path := func(file string) string { return filepath.Join(a.dir, file) }
	return []string{"--tls-cert", path(name + ".crt"), "--tls-key", path(name + ".key"), "--tls-ca", path("ca.crt")}
}

func (a *authority) make(name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(a.now.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: a.now.Add(-time.Hour), NotAfter: a.now.Add(1000 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: a.cert == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := form, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, form, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cert, key
}

// TestTLS: iwarp over TLS, with a certificate that the other end does not
// believe, and with TLS on one end alone.
func TestTLS(t *testing.T) {
	now := time.Now()
	ca := newAuthority(t, now)
	other := newAuthority(t, now)
	h := here(t)
	addr := freePort(t)
	n := h.start(standalone(t, addr, ca.flags("server")...)...)
	with := func(flags ...string) []string {
		return append([]string{"--fabric", "iwarp", "--timeout", "3s", n.Data}, flags...)
	}
	h.want(h.doctor(with(ca.flags("client")...)...), "", "ok   large read")
	h.want(h.doctor(with(other.flags("client")...)...), "tls", "TLS does not come about")
	h.want(h.doctor(with()...), "tls", "wants TLS")
	mixed := ca.flags("client")
	mixed[5] = other.flags("client")[5] // its CA
	h.want(h.doctor(with(mixed...)...), "tls", "does not vouch")
}
