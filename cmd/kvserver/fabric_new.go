package main

import (
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/machine"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// newFabrics makes the fabrics. It is the only place in this program that
// knows which there are.
func newFabrics(c config.Config, log *slog.Logger) fabrics {
	tls, err := c.TLSConfig()
	f := fabrics{verbs: verbs.New(verbsOptions(c, log)), iwarp: iwarp.New(iwarpOptions(c, tls)), err: err}
	if c.Shm != "off" {
		f.shm = shm.New(shmOptions(c))
	}
	return f
}

// shmOptions translates the configuration.
func shmOptions(c config.Config) shm.Options {
	o := shm.Options{Dir: c.ShmDir}
	if limit, err := machine.OpenFiles(); err == nil {
		o.MaxPending = min(256, machine.PendingConns(limit))
	}
	if c.Shm == "trusted" {
		o.Trust = shm.Trusted
	}
	if c.Mode != "cache" {
		o.Proof = server.ReaderProof(c.DataDir)
	}
	return o
}

// iwarpOptions translates the configuration.
func iwarpOptions(c config.Config, tls *tls.Config) iwarp.Options {
	o := iwarp.Options{TLS: tls, Spin: time.Duration(c.Spin)}
	if limit, err := machine.OpenFiles(); err == nil {
		o.MaxPending = machine.PendingConns(limit)
	}
	o.Wait, _ = rdma.ParseWaitMode(c.Wait) // checked by internal/config
	switch c.Spin {
	case config.SpinAuto:
		o.Spin = 0
	case 0:
		o.Spin = -1
	}
	return o
}

// verbsOptions translates the configuration, whose limits hold already.
func verbsOptions(c config.Config, log *slog.Logger) verbs.Options {
	return verbs.Options{
		Connect:      c.VerbsConnect,
		ProbeRights:  true, // strangers connect to a server
		GIDIndex:     c.GIDIndex,
		TrafficClass: uint8(c.TrafficClass),
		ServiceLevel: uint8(c.ServiceLevel),
		PathMTU:      c.PathMTU,
		Timeout:      uint8(c.AckTimeout),
		RetryCount:   uint8(c.RetryCount),
		Logger:       log,
	}
}
