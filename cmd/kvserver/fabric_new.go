package main

import (
	"log/slog"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// newFabrics makes the fabrics. It is the only place in this program that
// knows which there are.
func newFabrics(c config.Config, log *slog.Logger) fabrics {
	return fabrics{iwarp: iwarp.New(iwarp.Options{})}
}
