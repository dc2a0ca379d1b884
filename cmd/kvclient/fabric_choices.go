package main

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
)

// newVerbs makes the fabric of RDMA devices with the options of the
// configuration.
func newVerbs(c config.Config, log *slog.Logger) *verbs.Fabric {
	return verbs.New(verbs.Options{
		Connect: c.VerbsConnect, GIDIndex: c.GIDIndex, TrafficClass: uint8(c.TrafficClass), ServiceLevel: uint8(c.ServiceLevel),
		PathMTU: c.PathMTU, Timeout: uint8(c.AckTimeout), RetryCount: uint8(c.RetryCount), Logger: log,
	})
}

// newShm makes the fabric of servers on this host; nil if it is switched off.
func newShm(c config.Config) *shm.Fabric {
	switch c.Shm {
	case "off":
		return nil
	case "trusted":
		return shm.New(shm.Options{Dir: c.ShmDir, Trust: shm.Trusted})
	}
	return shm.New(shm.Options{Dir: c.ShmDir})
}

// iwarpOptions translates the configuration.
func iwarpOptions(c config.Config, tls *tls.Config) iwarp.Options {
	o := iwarp.Options{TLS: tls, Spin: time.Duration(c.Spin)}
	o.Wait, _ = rdma.ParseWaitMode(c.Wait) // checked by internal/config
	switch c.Spin {
	case config.SpinAuto:
		o.Spin = 0
	case 0:
		o.Spin = -1
	}
	return o
}

// fabricChoices lists the fabrics that the configuration allows, the one to
// prefer first.
func (a *app) fabricChoices() (list []choice) {
	c := a.cfg.Config
	if c.Fabric == "auto" || c.Fabric == "shm" {
		if near := newShm(c); near != nil {
			l := choice{fabric: near}
			if c.RequireRDMA {
				l.err = errors.New("shm: it is done in software, and require_rdma is set")
			}
			list = append(list, l)
		}
	}
	if c.Fabric == "auto" || c.Fabric == "verbs" {
		hard := newVerbs(c, a.logger())
		err := hard.Unavailable()
		if err != nil {
			err = fmt.Errorf("verbs: %w", err)
		}
		list = append(list, choice{fabric: hard, err: err})
	}
	if c.Fabric == "auto" || c.Fabric == "iwarp" {
		tls, err := c.TLSConfig()
		soft := choice{fabric: iwarp.New(iwarpOptions(c, tls)), err: err}
		if c.RequireRDMA {
			soft.err = errors.New("iwarp: it is done in software, and require_rdma is set")
		}
		list = append(list, soft)
	}
	return list
}
