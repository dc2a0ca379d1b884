package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"time"
)

// TLS are the files of iwarp over TLS; all empty: not used.
type TLS struct{ Cert, Key, CA string }

// certWarn is how long before its end a certificate is spoken of.
const certWarn = 14 * 24 * time.Hour

// tls examines certificate, key and CA together: that they are a pair, in
// force, and signed by an authority that the other end trusts. Files that
// cannot be read are findings of keyFiles.
func (e *exam) tls() {
	files := e.set.TLS
	if files == (TLS{}) {
		return
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		e.bad(Fail, "tls", files.Cert, CodeTLS, "a certificate and the key that belongs to it, both PEM", "%v", err)
		return
	}
	leaf := pair.Leaf
	if leaf == nil {
		if leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			e.bad(Fail, "tls", files.Cert, CodeTLS, "", "%v", err)
			return
		}
	}
	pem, err := os.ReadFile(files.CA)
	roots, among := x509.NewCertPool(), x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		e.bad(Fail, "tls", files.CA, CodeTLS, "the certificates that both ends are signed by, PEM", "no certificate can be read there: %v", err)
		return
	}
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			among.AddCert(c)
		}
	}
	now := e.Now()
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: among, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	left := leaf.NotAfter.Sub(now)
	switch {
	case now.Before(leaf.NotBefore) || left <= 0:
		e.bad(Fail, "tls", files.Cert, CodeTLS, "another certificate; or look at this machine's clock", "it is in force from %s to %s, and now is %s",
			leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339), now.Format(time.RFC3339))
	case err != nil:
		e.bad(Fail, "tls", files.Cert, CodeTLS, "sign it by a CA of tls.ca: the other end believes no other", "tls.ca does not vouch for it: %v", err)
	case left < certWarn:
		e.bad(Warn, "tls", files.Cert, CodeTLS, "renew it", "it ends in %v, at %s", left.Round(time.Hour), leaf.NotAfter.Format(time.RFC3339))
	default:
		e.ok("tls", files.Cert, "a pair with its key, signed by a CA of tls.ca, in force until %s", leaf.NotAfter.Format(time.RFC3339))
	}
}
