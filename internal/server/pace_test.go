package server

import (
	"testing"
	"time"
)

// TestScansRest: a scan of a tenant who has more of them waiting rests between its
// slices, for as long as each took. Those of the main login do not.
func TestScansRest(t *testing.T) {
	srv := floodServer(t, nil)
	hog := dial(t, srv, as("clerk"))
	heldWorkers(t, srv, "clerk")
	hog.flood(2)
	eventually(t, "two scans wait", func() bool { return queuedOf(srv, "clerk") == 2 })
	scan := func(tenant string) *request {
		return &request{s: &session{srv: srv, login: loginOf(srv, tenant)}}
	}
	if scan("").pause() != nil {
		t.Error("scans of the main login are to rest")
	}
	pause := scan("clerk").pause()
	time.Sleep(2 * restMax) // a slice
	for range 2 {
		begun := time.Now()
		if pause(); time.Since(begun) < restMax {
			t.Errorf("a rest of %v after a slice of %v", time.Since(begun), 2*restMax)
		}
		time.Sleep(2 * restMax)
	}
}
