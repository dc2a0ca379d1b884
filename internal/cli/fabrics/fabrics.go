// Package fabrics translates the configuration into RDMA fabrics, for every program
// that reads config.yaml: kvclient, kvserver and the binding of go-ycsb.
//
// Only this package knows which fabrics the programs are built with, and which
// words of the configuration stand for which options. If two programs translated a
// key by themselves, the key could come to mean two things. Package
// internal/config has checked every value, so only reading TLS files can fail here.
package fabrics

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/rdma/verbs"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// ForClient makes the fabrics that the configuration allows, the one to prefer
// first: shared memory reaches a server on this host at the least cost, a device of
// verbs is faster than software, and iwarp reaches whatever TCP reaches. Whether a
// fabric is available here, and reaches the server, is left to the client library: it
// tries them in this order and says why one was passed over. An error is about the
// files of tls.*.
func ForClient(c config.Config, log *slog.Logger) ([]rdma.Fabric, error) {
	var list []rdma.Fabric
	if (c.Fabric == "auto" || c.Fabric == "shm") && !c.RequireRDMA {
		if near := newShm(c); near != nil {
			list = append(list, near)
		}
	}
	if c.Fabric == "auto" || c.Fabric == "verbs" {
		list = append(list, verbs.New(Verbs(c, log)))
	}
	if (c.Fabric == "auto" || c.Fabric == "iwarp") && !c.RequireRDMA { // iwarp and require_rdma: refused by internal/config
		tls, err := c.TLSConfig()
		if err != nil {
			return nil, err
		}
		list = append(list, iwarp.New(IWARP(c, tls)))
	}
	return list, nil
}

// A Choice is a fabric that the configuration names. Err says why it cannot be used
// on this machine or with this configuration; Fabric is never nil.
type Choice struct {
	Fabric rdma.Fabric
	Err    error
}

// Choices lists the fabrics that the configuration names, the one to prefer first,
// with the reason for each that cannot be used. ForClient leaves such a fabric out
// silently; Choices keeps it, because the tools that call it explain to a person
// why a device is not used.
func Choices(c config.Config, log *slog.Logger) (list []Choice) {
	if c.Fabric == "auto" || c.Fabric == "shm" {
		if near := newShm(c); near != nil {
			l := Choice{Fabric: near}
			if c.RequireRDMA {
				l.Err = errors.New("shm: it is done in software, and require_rdma is set")
			}
			list = append(list, l)
		}
	}
	if c.Fabric == "auto" || c.Fabric == "verbs" {
		hard := verbs.New(Verbs(c, log))
		err := hard.Unavailable()
		if err != nil {
			err = fmt.Errorf("verbs: %w", err)
		}
		list = append(list, Choice{Fabric: hard, Err: err})
	}
	if c.Fabric == "auto" || c.Fabric == "iwarp" {
		tls, err := c.TLSConfig()
		soft := Choice{Fabric: iwarp.New(IWARP(c, tls)), Err: err}
		if c.RequireRDMA {
			soft.Err = errors.New("iwarp: it is done in software, and require_rdma is set")
		}
		list = append(list, soft)
	}
	return list
}

// newShm makes the fabric of servers on this host, or returns nil if the
// configuration turns it off.
func newShm(c config.Config) *shm.Fabric {
	if c.Shm == "off" {
		return nil
	}
	return shm.New(Shm(c))
}

// Verbs are the options of the fabric of RDMA devices. A server also sets
// ProbeRights. A nil log is none.
func Verbs(c config.Config, log *slog.Logger) verbs.Options {
	return verbs.Options{
		Connect:      c.VerbsConnect,
		GIDIndex:     c.GIDIndex,
		TrafficClass: uint8(c.TrafficClass),
		ServiceLevel: uint8(c.Expert.ServiceLevel),
		PathMTU:      c.Expert.PathMTU,
		Logger:       log,
	}
}

// Shm are the options of the fabric of shared memory. The caller must have checked
// that shm is not "off". A server also sets MaxPending and Proof.
func Shm(c config.Config) shm.Options {
	o := shm.Options{Dir: c.ShmDir}
	if c.Shm == "trusted" {
		o.Trust = shm.Trusted
	}
	return o
}

// IWARP are the options of the fabric in software; tls is nil for connections in
// the clear. A server also sets MaxPending.
func IWARP(c config.Config, tls *tls.Config) iwarp.Options {
	mode, spin := Waiting(c)
	return iwarp.Options{TLS: tls, Wait: mode, Spin: spin, NoCRCWithin: true}
}

// Waiting is how a completion is waited for, in the words of package rdma/wait. The
// configuration says "auto" to leave the time of spinning to the fabric and 0 for
// not spinning at all; the fabrics say 0 and -1, because the zero value of their
// options must be the one to use.
func Waiting(c config.Config) (mode wait.Mode, spin time.Duration) {
	mode, _ = wait.ParseMode(c.Wait) // internal/config has checked the word
	switch c.Expert.Spin {
	case config.SpinAuto:
		return mode, 0
	case 0:
		return mode, -1
	}
	return mode, time.Duration(c.Expert.Spin)
}
