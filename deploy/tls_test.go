package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/config"
)

// TestCertificates types the block of openssl in README.md, and takes what it made
// as a node does.
func TestCertificates(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		if os.Getenv("RDMAKV_REQUIRE_OPENSSL") == "1" {
			t.Fatalf("RDMAKV_REQUIRE_OPENSSL=1, but: %v (apt-get install openssl)", err)
		}
		t.Skipf("no openssl here: %v", err)
	}
	_, block, _ := strings.Cut(read(t, "README.md"), "```\ncd /etc/rdmakv\nopenssl")
	block, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatal("README.md has no block of openssl")
	}
	dir := t.TempDir()
	cmd := exec.Command("bash", "-euc", "openssl"+block)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(read(t, filepath.Join(dir, "ca.pem")))) {
		t.Fatal("ca.pem has no certificate")
	}
	for name, ip := range map[string]string{"kv1.example": "10.0.0.1", "kv3.example": "10.0.0.3", "app.example": "10.0.0.9"} {
		p, _ := pem.Decode([]byte(read(t, filepath.Join(dir, name+".pem"))))
		cert, err := x509.ParseCertificate(p.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{name, ip} {
			for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
				if _, err := cert.Verify(x509.VerifyOptions{DNSName: host, Roots: pool, KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
					t.Errorf("%s as %s: %v", name, host, err)
				}
			}
		}
		if cert.VerifyHostname("10.0.0.77") == nil {
			t.Errorf("%s is good for any address", name)
		}
		l, err := config.Load(config.Options{Scope: config.ForServer, Search: []string{}, Env: []string{"RDMAKV_FABRIC=iwarp",
			"RDMAKV_TLS_CERT=" + filepath.Join(dir, name+".pem"), "RDMAKV_TLS_KEY=" + filepath.Join(dir, name+".key"), "RDMAKV_TLS_CA=" + filepath.Join(dir, "ca.pem")}})
		if err != nil {
			t.Fatal(err)
		}
		made, err := l.TLSConfig()
		if err != nil || made == nil || made.MinVersion < tls.VersionTLS13 {
			t.Errorf("%s: %+v, %v", name, made, err)
		}
		if st, err := os.Stat(filepath.Join(dir, name+".key")); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("the key of %s: %v, %v", name, st.Mode(), err)
		}
	}
}
