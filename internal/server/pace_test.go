package server

import (
	"fmt"
	"testing"
	"time"
)

// TestScansRest: a scan of a tenant who has more of them waiting rests between its
// slices, for as long as each took and for each that waits. Those of the main login
// do not.
func TestScansRest(t *testing.T) {
	const slice = time.Millisecond
	for _, tt := range []struct {
		waiting int
		rest    time.Duration
	}{
		{1, slice},
		{3, 3 * slice},
		{14, restTimes * slice},
	} {
		t.Run(fmt.Sprint(tt.waiting), func(t *testing.T) {
			srv := floodServer(t, nil)
			heldWorkers(t, srv, "clerk")
			for left := tt.waiting; left > 0; left -= 7 { // a session has eight credits
				dial(t, srv, as("clerk")).flood(min(left, 7))
			}
			eventually(t, "the scans wait", func() bool { return queuedOf(srv, "clerk") == tt.waiting })
			scan := func(tenant string) *request {
				return &request{s: &session{srv: srv, login: loginOf(srv, tenant)}}
			}
			if scan("").pause() != nil {
				t.Error("scans of the main login are to rest")
			}
			pause := scan("clerk").pause()
			for range 2 {
				time.Sleep(slice)
				begun := time.Now()
				if pause(); time.Since(begun) < tt.rest {
					t.Errorf("a rest of %v after a slice of %v beside %d scans that wait", time.Since(begun), slice, tt.waiting)
				}
			}
			time.Sleep(10 * restMax) // a slice that took long
			begun := time.Now()
			if pause(); time.Since(begun) < restMax {
				t.Errorf("a rest of %v after a long slice", time.Since(begun))
			}
		})
	}
}
