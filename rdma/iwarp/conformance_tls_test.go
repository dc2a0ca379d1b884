package iwarp_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/rdmatest"
)

// certDir hands the certificates to the second process of the suite.
const certDir = "RDMAKV_TEST_CERTS"

func secureOptions(tb testing.TB) iwarp.Options {
	tb.Helper()
	dir := os.Getenv(certDir)
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		tb.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		tb.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return iwarp.Options{TLS: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool}}
}

func secureConformance(tb testing.TB, kind mem.Kind) rdmatest.Config {
	c := conformance(kind, secureOptions(tb))
	c.Child = "TestConformanceTLSChild"
	c.Want = rdma.CapSRQ | rdma.CapInline | rdma.CapWrite | rdma.CapDiesWithProcess
	return c
}

// The whole suite, inside TLS.
func TestConformanceTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("TestConformanceHeap does the most of it, and make unit all of it")
	}
	dir := t.TempDir()
	rdmatest.NewCA(t).Write(t, dir, []string{"127.0.0.1", "::1", "localhost"})
	t.Setenv(certDir, dir)
	rdmatest.Run(t, secureConformance(t, mem.Heap))
}

// TestConformanceTLSChild is the second process of the suite.
func TestConformanceTLSChild(t *testing.T) {
	if os.Getenv(certDir) == "" {
		return
	}
	rdmatest.Child(t, secureConformance(t, mem.Mmap))
}

// BenchmarkConformanceTLS is what TLS costs: compare BenchmarkConformance.
func BenchmarkConformanceTLS(b *testing.B) {
	dir := b.TempDir()
	rdmatest.NewCA(b).Write(b, dir, []string{"127.0.0.1", "::1", "localhost"})
	b.Setenv(certDir, dir)
	rdmatest.Bench(b, secureConformance(b, mem.Mmap))
}
