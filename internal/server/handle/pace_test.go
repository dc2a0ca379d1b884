package handle

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/work"
)

// A heldWorker is a job that keeps its worker until release is closed.
type heldWorker struct{ release chan struct{} }

func (j heldWorker) Run()         { <-j.release }
func (j heldWorker) Drop()        {}
func (j heldWorker) Refuse()      {}
func (j heldWorker) Again() bool  { return true }
func (j heldWorker) AddGrant(int) {}

// endless is a session that never ends.
type endless struct{}

func (endless) Ended() bool { return false }
func (endless) Flush()      {}

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
			logins := auth.NewLogins(auth.LoginsConfig{Secret: []byte("main"), MaxSessions: 8, MaxRequests: 64, Tenants: []auth.Tenant{tenant("clerk")}})
			all := map[string]*auth.Login{}
			for _, l := range logins.All() {
				all[l.Name] = l
			}
			p := work.New(work.Scans, 3, 2, 1)
			j := heldWorker{make(chan struct{})}
			defer p.Close()
			defer close(j.release)
			for name, n := range map[string]int{"clerk": tt.mine, "": tt.others} {
				turns, line := &all[name].Turns, new(work.Line)
				line.Init(turns, endless{})
				for range p.Share(turns) + n { // its share of the workers is held, and n wait
					p.Submit(line, j)
				}
				eventually(t, "the scans wait", func() bool {
					mine, _ := p.Backlog(turns)
					return mine == n
				})
			}
			if got := rest(tt.slice, p, &all["clerk"].Turns); got != tt.want {
				t.Errorf("a rest of %v, want %v", got, tt.want)
			}
			scan := func(name string) *op {
				s := &session.Session{Login: all[name]}
				return &op{Request: &session.Request{Session: s}, c: &conn{env: &Env{Scans: p}}}
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
