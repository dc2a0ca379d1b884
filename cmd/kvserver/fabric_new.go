package main

import (
	"log/slog"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// newFabrics makes the fabrics. It is the only place in this program that
// knows which there are.
func newFabrics(c config.Config, log *slog.Logger) fabrics {
	tls, err := c.TLSConfig()
	return fabrics{verbs: verbs.New(verbsOptions(c, log)), iwarp: iwarp.New(iwarp.Options{TLS: tls}), err: err}
}

// verbsOptions translates the configuration, whose limits hold already.
func verbsOptions(c config.Config, log *slog.Logger) verbs.Options {
	return verbs.Options{
		Connect:      c.VerbsConnect,
		GIDIndex:     c.GIDIndex,
		TrafficClass: uint8(c.TrafficClass),
		ServiceLevel: uint8(c.ServiceLevel),
		PathMTU:      c.PathMTU,
		Timeout:      uint8(c.AckTimeout),
		RetryCount:   uint8(c.RetryCount),
		Logger:       log,
	}
}
