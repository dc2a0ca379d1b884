package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/session"
)

// TestScansRest: a scan of a tenant who has more of them waiting rests between its
// slices, for as long as each took and for each that waits; not so long where others
// wait for the worker. Those of the main login do not.
func TestScansRest(t *testing.T) {
	const slice = time.Millisecond
	for _, tt := range []struct {
		mine, others int
		slice, want  time.Duration
	}{
		{0, 0, slice, 0},
		{1, 0, slice, slice},
		{3, 0, slice, 3 * slice},
		{14, 0, slice, restTimes * slice},
		{14, 0, time.Second, restMax}, // it had no processor
		{14, 1, slice, slice},
		{0, 1, slice, 0},
	} {
		t.Run(fmt.Sprintf("%d+%d, %v", tt.mine, tt.others, tt.slice), func(t *testing.T) {
			srv := floodServer(t, nil)
			for tenant, n := range map[string]int{"clerk": tt.mine, "": tt.others} {
				heldWorkers(t, srv, tenant)
				for left := n; left > 0; left -= 7 { // a session has eight credits
					dial(t, srv, as(tenant)).flood(min(left, 7))
				}
				eventually(t, "the scans wait", func() bool {
					mine, _ := srv.main.scans.Backlog(&loginOf(srv, tenant).Turns)
					return mine == n
				})
			}
			if got := rest(tt.slice, srv.main.scans, &loginOf(srv, "clerk").Turns); got != tt.want {
				t.Errorf("a rest of %v, want %v", got, tt.want)
			}
			scan := func(tenant string) *op {
				s := &session.Session{Login: loginOf(srv, tenant)}
				return &op{Request: &session.Request{Session: s}, c: srv.main.handlers.newConn(s)}
			}
			if pauseOf(scan("")) != nil {
				t.Error("scans of the main login are to rest")
			}
			pause, begun := pauseOf(scan("clerk")), time.Now()
			time.Sleep(slice)
			if pause(); time.Since(begun) < slice+min(tt.want, slice) {
				t.Errorf("slice and rest took %v", time.Since(begun))
			}
		})
	}
}
