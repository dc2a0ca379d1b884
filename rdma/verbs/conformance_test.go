package verbs_test

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma/rdmatest"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// impatience is a set-up deadline that tests wait for.
const impatience = 500 * time.Millisecond

func TestConformanceCM(t *testing.T) {
	cfg := conformance(t, verbs.Options{})
	cfg.Child = "TestConformanceChildCM"
	if testing.Short() {
		cfg.Connections = 200
	}
	rdmatest.Run(t, cfg)
}

func TestConformanceTCP(t *testing.T) {
	cfg := conformance(t, verbs.Options{Connect: verbs.ConnectTCP})
	cfg.Child = "TestConformanceChildTCP"
	cfg.Connections = 200 // a thousand are for the default
	if testing.Short() {
		cfg.Connections = 50
	}
	rdmatest.Run(t, cfg)
}

// TestConformanceChildCM is the second process of the suite; run by itself it
// has nothing to do.
func TestConformanceChildCM(t *testing.T) {
	rdmatest.Child(t, conformance(t, verbs.Options{}))
}

func TestConformanceChildTCP(t *testing.T) {
	rdmatest.Child(t, conformance(t, verbs.Options{Connect: verbs.ConnectTCP}))
}
