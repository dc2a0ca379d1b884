package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// certificate makes a certificate signed by another one (nil: by itself), and
// returns its files.
func certificate(t *testing.T, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey, from, to time.Time) (certFile, keyFile string, c *x509.Certificate, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to, IsCA: ca == nil, BasicConstraintsValid: true}
	parent, signer := form, key
	if ca != nil {
		parent, signer = ca, caKey
	}
	der, err := x509.CreateCertificate(rand.Reader, form, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile, c, key
}

// TestTLS: certificates that the other end would not believe are named before
// any peer is dialed.
func TestTLS(t *testing.T) {
	now := time.Now()
	year := now.Add(365 * 24 * time.Hour)
	caFile, _, ca, caKey := certificate(t, "ca", nil, nil, now.Add(-time.Hour), year)
	otherFile, _, _, _ := certificate(t, "other", nil, nil, now.Add(-time.Hour), year)
	good, goodKey, _, _ := certificate(t, "good", ca, caKey, now.Add(-time.Hour), year)
	_, strangeKey, _, _ := certificate(t, "strange", ca, caKey, now.Add(-time.Hour), year)
	old, oldKey, _, _ := certificate(t, "old", ca, caKey, now.Add(-2*time.Hour), now.Add(-time.Hour))
	soon, soonKey, _, _ := certificate(t, "soon", ca, caKey, now.Add(-2*time.Hour), now.Add(48*time.Hour))
	for _, c := range []struct {
		name  string
		files TLS
		level Level
		text  string
	}{
		{"good", TLS{good, goodKey, caFile}, OK, "in force until"},
		{"another key", TLS{good, strangeKey, caFile}, Fail, "does not match"},
		{"another CA", TLS{good, goodKey, otherFile}, Fail, "does not vouch"},
		{"over", TLS{old, oldKey, caFile}, Fail, "in force from"},
		{"nearly over", TLS{soon, soonKey, caFile}, Warn, "it ends in 48h"},
		{"no CA", TLS{good, goodKey, goodKey}, Fail, "no certificate can be read"},
		{"missing", TLS{good + "x", goodKey, caFile}, Fail, "no such file"},
	} {
		r := newRig(t)
		r.set.TLS = c.files
		report, failed, warned := r.run()
		codes := map[Level][]string{Fail: failed, Warn: warned}[c.level]
		if c.level != OK && !slices.Equal(codes, []string{CodeTLS}) || c.level == OK && len(failed)+len(warned) > 0 || !strings.Contains(report.Text(), c.text) {
			t.Errorf("%s: failed %v, warned %v\n%s", c.name, failed, warned, report.Text())
		}
	}
}
