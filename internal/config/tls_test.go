package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// selfSigned makes a certificate that is its own CA.
func selfSigned(t *testing.T, until time.Time) (cert, key []byte) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kv"}, DNSNames: []string{"kv"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &priv.PublicKey, priv)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func TestTLSConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key := selfSigned(t, time.Now().Add(time.Hour))
	oldCert, oldKey := selfSigned(t, time.Now().Add(-time.Hour))
	_, otherKey := selfSigned(t, time.Now().Add(time.Hour))
	c := write("cert.pem", cert, 0o644)
	k := write("key.pem", key, 0o600)

	if got, err := (&Config{}).TLSConfig(); got != nil || err != nil {
		t.Errorf("without keys: %v, %v", got, err)
	}
	got, err := (&Config{TLS: TLS{Cert: c, Key: k, CA: c}}).TLSConfig()
	if err != nil || got.GetCertificate == nil || got.GetClientCertificate == nil || got.RootCAs == nil || got.ClientCAs == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, tc := range map[string]struct {
		tls  TLS
		want []string
	}{
		"no certificate":      {TLS{dir + "/none", k, c}, []string{"tls.cert", "none", "no such file"}},
		"no key":              {TLS{c, dir + "/none", c}, []string{"tls.key", "none", "no such file"}},
		"no CA":               {TLS{c, k, dir + "/none"}, []string{"tls.ca", "none", "no such file"}},
		"an open key":         {TLS{c, write("open.pem", key, 0o640), c}, []string{"tls.key", "mode 0640", "0600"}},
		"a directory":         {TLS{dir, k, c}, []string{"tls.cert", "no regular file"}},
		"another key":         {TLS{c, write("other.pem", otherKey, 0o600), c}, []string{"tls.cert", "other.pem", "match"}},
		"expired":             {TLS{write("old.pem", oldCert, 0o600), write("oldkey.pem", oldKey, 0o600), c}, []string{"tls.cert", "valid from"}},
		"a CA that is a key":  {TLS{c, k, k}, []string{"tls.ca", "PRIVATE KEY", "only certificates"}},
		"an empty CA":         {TLS{c, k, write("empty.pem", nil, 0o600)}, []string{"tls.ca", "no certificate"}},
		"half a certificate":  {TLS{c, k, write("half.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1, 2}}), 0o600)}, []string{"tls.ca", "certificate 1"}},
		"a large certificate": {TLS{write("large.pem", make([]byte, maxPEM+1), 0o600), k, c}, []string{"tls.cert", "larger than"}},
	} {
		_, err := (&Config{TLS: tc.tls}).TLSConfig()
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
		if strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%s: a file is shown: %v", name, err)
		}
	}
}

// New files are taken without a restart, and broken ones are not.
func TestTLSFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	p := &keyPair{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	at := time.Now().Add(-time.Hour)
	write := func(path string, data []byte) {
		t.Helper()
		at = at.Add(time.Minute) // file systems count in coarse steps
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	later := func() []byte {
		p.mu.Lock()
		p.looked = time.Time{}
		p.mu.Unlock()
		return p.current().Certificate[0]
	}
	cert, key := selfSigned(t, time.Now().Add(time.Hour))
	write(p.cert, cert)
	write(p.key, key)
	if _, err := p.load(); err != nil {
		t.Fatal(err)
	}
	first := later()
	if string(later()) != string(first) {
		t.Error("the pair changed by itself")
	}
	cert, key = selfSigned(t, time.Now().Add(2*time.Hour))
	write(p.cert, cert)
	if string(later()) != string(first) {
		t.Error("half of a new pair is in force")
	}
	write(p.key, key)
	second := later()
	if string(second) == string(first) {
		t.Error("the new pair is not in force")
	}
	write(p.key, []byte("no key"))
	if string(later()) != string(second) {
		t.Error("a broken file took the pair away")
	}
}
